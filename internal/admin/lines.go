package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/endpoints"
	"github.com/chancery-xds/chancery/internal/adminapi"
)

// linesOfJSON is the content type of a stream of lines, each of which is an object.
const linesOfJSON = "application/x-ndjson"

const (
	maxLine  = 16 << 10        // bytes of a line
	maxLines = 1000            // that are done together
	quiet    = 2 * time.Minute // how long a stream without a lease may say nothing
)

// streamEndpoints registers what lines say, for as long as they come: whatever line comes renews the lease of all that
// the stream has put. Lines that come together are done together, and answered by one line. It ends when who sends
// has ended, when no line has come for the time of the lease, or with a line that is too long.
func (s *Server) streamEndpoints(w http.ResponseWriter, r *http.Request) error {
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // it answers while it reads; a refusal, too, waits for no line
	}
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	ttl, err := ttlOf("ttl", q.text("ttl"))
	if err != nil {
		return err
	}
	if err := s.mayRegister(r); err != nil {
		return err
	}
	leave, err := s.streams.of(r).enter("too many register endpoints")
	if err != nil {
		return err
	}
	defer leave()
	session, err := s.Endpoints.Session(ttl)
	if err != nil {
		return s.registering(err, "")
	}
	l := &lines{s: s, session: session, ttl: ttl, in: bufio.NewReaderSize(r.Body, maxLine), w: w, control: http.NewResponseController(w)}
	stop := context.AfterFunc(r.Context(), func() { _ = l.control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	headers(w, linesOfJSON)
	w.WriteHeader(http.StatusOK)
	_ = l.control.Flush()
	s.log().Info("a stream of endpoints has begun", "ttl", ttl.String(), "peer", peer(r))
	err = l.run(r.Context())
	s.log().Info("a stream of endpoints has ended", "lines", l.n, "peer", peer(r), "error", err)
	return nil
}

// lines are those of a stream.
type lines struct {
	s       *Server
	session *endpoints.Session
	ttl     time.Duration
	in      *bufio.Reader
	w       http.ResponseWriter
	control *http.ResponseController
	n       int // that were done
}

// A line is one that was read.
type line struct {
	n   int
	op  endpoints.Op
	err error // why it is not taken
	is  bool  // a step; else it is empty
}

// run does what lines say. They are read while those before them are written to the disk, so that many go
// there together.
func (l *lines) run(ctx context.Context) (err error) {
	read, done := make(chan line, maxLines), make(chan struct{})
	var end error // of reading
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(read)
		end = l.read(ctx, read, done)
	})
	for first := range read {
		all := append(make([]line, 0, 1+len(read)), first)
		for range len(read) {
			all = append(all, <-read)
		}
		if err = l.do(ctx, all); err != nil {
			break
		}
	}
	close(done)
	_ = l.control.SetReadDeadline(time.Unix(1, 0))
	reading.Wait()
	if err == nil && ctx.Err() == nil && !errors.Is(end, io.EOF) {
		err = end
	}
	return err
}

// read reads lines until there are no more, and returns why.
func (l *lines) read(ctx context.Context, to chan<- line, done <-chan struct{}) error {
	wait := quiet
	if l.ttl > 0 {
		wait = l.ttl + time.Second // what comes later is too late
	}
	for n := 1; ; n++ {
		if l.in.Buffered() == 0 {
			_ = l.control.SetReadDeadline(time.Now().Add(wait))
			select { // who ends it sets one that is over, perhaps just before this one
			case <-ctx.Done():
				return ctx.Err()
			case <-done:
				return nil
			default:
			}
		}
		text, err := l.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("line %d has more than %d bytes", n, maxLine)
		}
		text = bytes.TrimSpace(text)
		if err != nil && len(text) == 0 {
			return err
		}
		one := line{n: n, is: len(text) > 0}
		if one.is {
			one.op, one.err = parseLine(text)
		}
		select {
		case to <- one:
		case <-done:
			return err
		}
		if err != nil {
			return err
		}
	}
}

func parseLine(line []byte) (endpoints.Op, error) {
	var in adminapi.EndpointLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return endpoints.Op{}, unread(err, maxLine)
	}
	if d.More() {
		return endpoints.Op{}, wrong("", "there is something after the object", "")
	}
	op := endpoints.Op{Cluster: endpoints.Cluster{Group: in.Group, Name: in.Cluster}, ID: in.Remove}
	switch {
	case (in.Put == nil) == (in.Remove == ""):
		return op, wrong("", "must have put or remove", "")
	case in.Put == nil:
		return op, nil
	case in.Put.TTL != "":
		return op, wrong("put.ttl", "must be that of the stream", "")
	}
	e, err := registered(*in.Put)
	op.ID, op.Endpoint = e.ID, &e.Endpoint
	return op, err
}

// do does what lines say, and answers.
func (l *lines) do(ctx context.Context, all []line) error {
	out := adminapi.EndpointLines{Line: all[len(all)-1].n}
	l.n = out.Line
	var ops []endpoints.Op
	var at []int // their lines
	for _, one := range all {
		switch {
		case one.err != nil:
			out.Errors = append(out.Errors, l.wrong(one.n, one.err))
		case one.is:
			ops, at = append(ops, one.op), append(at, one.n)
		}
	}
	err := l.session.Beat(ctx)
	var errs map[int]error
	if err == nil || errors.Is(err, endpoints.ErrNoLease) {
		out.Lost = err != nil
		if errs, err = l.session.Apply(ctx, ops); errors.Is(err, endpoints.ErrNoLease) { // just then
			out.Lost = true
			errs, err = l.session.Apply(ctx, ops)
		}
	}
	for i, n := range at {
		if why := errs[i]; why != nil {
			out.Errors = append(out.Errors, l.wrong(n, why))
		} else if err != nil {
			out.Errors = append(out.Errors, l.wrong(n, err))
		}
	}
	slices.SortFunc(out.Errors, func(a, b adminapi.LineError) int { return cmp.Compare(a.Line, b.Line) })
	b, _ := json.Marshal(out)
	_ = l.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return l.control.Flush()
}

// wrong is why a line was not taken.
func (l *lines) wrong(n int, err error) adminapi.LineError {
	p, _ := errors.AsType[*problem](l.s.registering(err, ""))
	return adminapi.LineError{Line: n, Field: p.field, Message: p.message}
}
