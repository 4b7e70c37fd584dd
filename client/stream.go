package client

import (
	"context"
	"errors"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// stallTimeout is how long a server may leave a request unread before the client ends the
	// stream. This limit ends a deadlock: client and server may each wait for the other to read.
	stallTimeout = 30 * time.Second

	// maxBacklog is the maximum number of responses that the client receives while their ACKs and
	// NACKs wait to be sent, or cannot be sent because the stream has ended.
	maxBacklog = 64
)

// errNoResult is the error of a Transport that breaks its contract.
var errNoResult = errors.New("the transport returned neither a response nor an error")

// A stream is one stream of a link. It has a receiving and a sending goroutine, which end with ctx.
// The client's loop ([Client.do]) owns the field `ready` and all fields after it.
type stream struct {
	ctx      context.Context
	cancel   context.CancelFunc
	out      chan *xds.Request // one slot, empty unless sending
	takeNext chan struct{}     // one slot: the receiver may take the next response

	ready         bool      // the stream was opened
	answered      bool      // a response arrived
	sending       bool      // a request is being sent
	sentAt        time.Time // when the last request was given to the sender
	over          error     // the error of Send: the stream has ended; nil: none
	backlog       int       // responses received without a request since; 0 when the queue of requests is empty
	receiverWaits bool      // the receiver waits for takeNext
	notBefore     time.Time // no response is taken before this time
	answerAfter   time.Time // no request is sent before this time; see mute
}

// open starts a stream.
func (l *link) open() {
	s := &stream{out: make(chan *xds.Request, 1), takeNext: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(l.c.ctx)
	l.s = s
	l.c.connecting(l.up)
	l.c.wg.Go(func() {
		defer s.cancel()
		err := errors.New("the stream was not opened")
		if p := panics.Do(func() { err = l.receive(s) }); p != nil {
			p.Log(l.c.log, "Transport")
			err = p
		}
		l.c.do(func() { l.ended(s, err) })
	})
}

// receive opens the stream and receives responses until an error ends it.
func (l *link) receive(s *stream) error {
	st, err := l.up.Transport.Open(s.ctx, l.only)
	if err != nil {
		return err
	}
	l.c.wg.Go(func() {
		if p := panics.Do(func() { s.sender(st, func(err error) { l.c.do(func() { s.sent(err) }) }) }); p != nil {
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
			return errNoResult
		}
		l.c.do(func() {
			l.received(s, resp)
			s.receiverWaits = true
		})
		select {
		case <-s.takeNext:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// sender sends requests until an error, and reports the results.
func (s *stream) sender(st Stream, sent func(error)) {
	for {
		select {
		case req := <-s.out:
			err := st.Send(req)
			sent(err)
			if err != nil {
				return
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// send gives a request to the sender, which must be idle.
func (s *stream) send(req *xds.Request, now time.Time) {
	s.sending, s.sentAt = true, now
	s.out <- req
}

// sent records the result of Send. After an error, backlog counts the responses since then.
func (s *stream) sent(err error) {
	s.sending, s.over = err != nil, err
	if err != nil {
		s.backlog = 0
	}
}

func (s *stream) stalled(now time.Time) bool {
	return s.sending && !now.Before(s.sentAt.Add(stallTimeout))
}

const (
	// ineffectiveRate limits responses without an effect, in bytes per second. Each counts ineffectiveSize more.
	ineffectiveRate = 2 << 20
	ineffectiveSize = 2 << 10
)

// delay delays the ACK or NACK of a response without an effect, so that a server that repeats its response after each of
// them waits. Reading is delayed less, because a change or the end of the stream may follow. If the size of the response
// is unknown, reading is delayed as long.
func (s *stream) delay(now time.Time, pause time.Duration, size int) {
	if pause == 0 || !s.answerAfter.After(now) {
		s.answerAfter = now.Add(pause)
	}
	if size > 0 {
		pause = min(pause, time.Duration(size+ineffectiveSize)*time.Second/ineffectiveRate)
	}
	s.notBefore = now.Add(pause)
}

// mute reports whether ACKs and NACKs are delayed. A full backlog is sent without a delay.
func (s *stream) mute(now time.Time) bool { return s.backlog < maxBacklog && s.answerAfter.After(now) }

// resume wakes the receiver if the receiver may take a response. After the end of the stream the receiver does not
// wait, because Recv returns the reason of the end. resume returns the time at which the loop must call it again.
func (s *stream) resume(now time.Time) (at time.Time) {
	if s.sending {
		at = s.sentAt.Add(stallTimeout)
	}
	switch {
	case !s.receiverWaits || s.over == nil && s.backlog >= maxBacklog:
	case s.over == nil && s.notBefore.After(now):
		at = earlier(at, s.notBefore)
	default:
		s.receiverWaits = false
		s.takeNext <- struct{}{}
	}
	return at
}
