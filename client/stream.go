package client

import (
	"context"
	"errors"
	"time"

	"github.com/chancery-xds/chancery/internal/guard"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// stallTimeout is how long a server may read nothing. It ends what could wait for ever: the
	// server for the client to read, and the client for the server.
	stallTimeout = 30 * time.Second

	// ahead is how many responses are taken while the answers to them wait to be sent.
	ahead = 64
)

// errNothing is that of a Transport which breaks its contract.
var errNothing = errors.New("the transport gives neither a response nor an error")

// A stream is one stream of a link, with a goroutine that receives and one that sends. Both
// end with ctx. Its other fields are the loop's.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	out    chan *xds.Request // one slot, which is empty unless sending
	more   chan struct{}     // one slot: the next response may be taken

	ready      bool      // it was opened
	answered   bool      // a response came
	sending    bool      // a request is on its way
	since      time.Time // when it left
	unanswered int       // responses since the last one that left nothing to send
	waiting    bool      // the receiver waits for more
	pause      time.Time // no response is taken before
}

// open begins a stream.
func (l *link) open() {
	s := &stream{out: make(chan *xds.Request, 1), more: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(l.c.ctx)
	l.s = s
	l.c.connecting(l.up)
	l.c.wg.Go(func() {
		defer s.cancel()
		err := errors.New("the stream was not opened")
		if p := guard.Do(func() { err = l.receive(s) }); p != nil {
			p.Log(l.c.log, "Transport")
			err = p
		}
		l.c.do(func() { l.ended(s, err) })
	})
}

// receive opens the stream and takes responses until an error ends it.
func (l *link) receive(s *stream) error {
	st, err := l.up.Transport.Open(s.ctx, l.only)
	if err != nil {
		return err
	}
	l.c.wg.Go(func() {
		if p := guard.Do(func() { s.sender(st, func() { l.c.do(func() { s.sending = false }) }) }); p != nil {
			p.Log(l.c.log, "Transport")
			s.cancel()
		}
	})
	l.c.do(func() { l.opened(s) })
	for {
		resp, err := st.Recv()
		switch {
		case err != nil:
			return err
		case resp == nil:
			return errNothing
		}
		l.c.do(func() {
			l.received(s, resp)
			s.waiting = true
		})
		select {
		case <-s.more:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// sender sends requests. After an error nothing is sent: the receiver gets an error, too.
func (s *stream) sender(st Stream, sent func()) {
	for {
		select {
		case req := <-s.out:
			if st.Send(req) != nil {
				return
			}
			sent()
		case <-s.ctx.Done():
			return
		}
	}
}

// send hands a request to the sender, which is idle.
func (s *stream) send(req *xds.Request, now time.Time) {
	s.sending, s.since = true, now
	s.out <- req
}

func (s *stream) stalled(now time.Time) bool {
	return s.sending && !now.Before(s.since.Add(stallTimeout))
}

// deadline is when the stream needs the loop next. It lets the receiver go on if that may be.
func (s *stream) deadline(now time.Time) (at time.Time) {
	if s.sending {
		at = s.since.Add(stallTimeout)
	}
	switch {
	case !s.waiting || s.unanswered >= ahead:
	case s.pause.After(now):
		at = earlier(at, s.pause)
	default:
		s.waiting = false
		s.more <- struct{}{}
	}
	return at
}
