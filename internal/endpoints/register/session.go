package register

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A session is one stream to the server, with the state of the server.
type session struct {
	*Registrar
	stream interface { // of the admin API
		Send(all []api.EndpointLine) (int, error)
	}
	cancel  context.CancelCauseFunc // ends the stream
	answers chan api.EndpointLines  // closed when the stream has ended
	end     error                   // the reason, once it is closed

	has     map[Part]map[string]string // by ID, the endpoint as JSON; "": unknown, it must be sent again
	fault   string                     // the fault that the server knows
	refused map[Part]bool              // parts with refused endpoints
	pause   time.Duration              // until those are sent again
}

var (
	errLost = errors.New("the lease had ended")
	errLate = errors.New("no answer in time")
)

// session keeps endpoints registered until the stream ends, and returns the reason. It calls begun when
// all endpoints have been sent once.
func (r *Registrar) session(ctx context.Context, begun func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(answerTime, func() { cancel(errLate) })
	stream, err := r.server.EndpointStream(ctx, r.opts.TTL)
	late.Stop()
	if err != nil {
		return err
	}
	s := &session{Registrar: r, stream: stream, cancel: cancel, answers: make(chan api.EndpointLines), has: map[Part]map[string]string{}, refused: map[Part]bool{}}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stream.Close()
	defer cancel(nil)
	reading.Go(func() {
		defer close(s.answers)
		for {
			a, err := stream.Receive()
			s.end = err
			if errors.Is(err, io.EOF) {
				s.end = errors.New("the server has ended the stream")
			} else if ctx.Err() != nil {
				s.end = context.Cause(ctx)
			}
			if s.end != nil {
				return
			}
			select {
			case s.answers <- a:
			case <-ctx.Done():
			}
		}
	})
	r.mu.Lock()
	for p := range r.want {
		r.changed[p] = true
	}
	r.mu.Unlock()
	return s.run(ctx, begun)
}

// run sends changes as they come, and renews the lease.
func (s *session) run(ctx context.Context, begun func()) error {
	every := beatTime
	if s.opts.TTL > 0 {
		every = min(every, s.opts.TTL/3)
	}
	beat := time.NewTicker(every)
	defer beat.Stop()
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for ; ; begun = func() {} {
		if err := s.sync(ctx); err != nil {
			return err
		}
		begun()
		if len(s.refused) > 0 {
			again.Reset(s.pause)
		}
		select {
		case <-s.bell:
		case <-again.C:
			s.mu.Lock()
			maps.Copy(s.changed, s.refused)
			s.mu.Unlock()
			clear(s.refused)
		case <-beat.C:
			if _, _, err := s.send(nil); err != nil {
				return err
			}
		case _, more := <-s.answers:
			if !more {
				return s.end
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A step is a line with its target.
type step struct {
	line api.EndpointLine
	part Part
	id   string
	text string // of the endpoint; "": it is removed
}

// sync sends the differences to the wanted endpoints to the server.
func (s *session) sync(ctx context.Context) error {
	s.mu.Lock()
	want := make(map[Part]map[string]api.Endpoint, len(s.changed))
	for p := range s.changed {
		want[p] = s.want[p] // it is replaced, never changed
	}
	clear(s.changed)
	fault := s.Registrar.fault
	s.mu.Unlock()
	if fault != s.fault {
		s.fault = fault
		if _, _, err := s.send([]api.EndpointLine{{Fault: &fault}}); err != nil { // an older server refuses the line
			return err
		}
	}
	var steps []step
	for p, all := range want {
		if s.has[p] == nil {
			there, err := s.Registered(ctx, p)
			if err != nil {
				return err
			}
			s.has[p] = map[string]string{}
			for _, e := range there {
				s.has[p][e.ID] = ""
			}
		}
		steps = append(steps, s.steps(p, all)...)
	}
	var wrong []api.LineError
	for part := range slices.Chunk(steps, batch) {
		more, err := s.take(part)
		if err != nil {
			return err
		}
		wrong = append(wrong, more...)
	}
	if len(wrong) > 0 {
		s.pause = min(max(2*s.pause, time.Second), time.Minute)
		s.opts.Log.Warn("server refuses endpoints: they are sent again", "count", len(wrong), "field", wrong[0].Field, "first", wrong[0].Message, "again_in", s.pause.String())
	} else if len(s.refused) == 0 {
		s.pause = 0
	}
	return nil
}

// steps returns the lines of a part: additions first, then removals.
func (s *session) steps(p Part, want map[string]api.Endpoint) (all []step) {
	for _, id := range slices.Sorted(maps.Keys(want)) {
		e := want[id]
		text, _ := json.Marshal(e)
		if s.has[p][id] != string(text) {
			all = append(all, step{api.EndpointLine{Cluster: p.Cluster, Group: p.Group, Put: &e}, p, id, string(text)})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.has[p])) {
		if _, stays := want[id]; !stays {
			all = append(all, step{api.EndpointLine{Cluster: p.Cluster, Group: p.Group, Remove: id}, p, id, ""})
		}
	}
	return all
}

// take sends steps, records their results, and returns the errors of refused ones.
func (s *session) take(steps []step) ([]api.LineError, error) {
	lines := make([]api.EndpointLine, len(steps))
	for i, one := range steps {
		lines[i] = one.line
	}
	first, wrong, err := s.send(lines)
	if err != nil {
		return nil, err
	}
	for _, one := range steps {
		if has := s.has[one.part]; one.text == "" {
			delete(has, one.id)
		} else {
			has[one.id] = one.text
		}
	}
	for _, e := range wrong {
		if i := e.Line - first; i >= 0 && i < len(steps) {
			s.has[steps[i].part][steps[i].id] = ""
			s.refused[steps[i].part] = true
		}
	}
	return wrong, nil
}

// send sends lines, or an empty one, and waits until they are done. It returns the number of the first
// line, and the refused lines.
func (s *session) send(lines []api.EndpointLine) (first int, wrong []api.LineError, err error) {
	late := time.AfterFunc(answerTime, func() { s.cancel(errLate) })
	defer late.Stop()
	last, err := s.stream.Send(lines)
	if err != nil {
		s.cancel(err)
	}
	for a := range s.answers {
		if a.Lost {
			return 0, nil, errLost
		}
		wrong = append(wrong, a.Errors...)
		if a.Line >= last {
			return last - max(len(lines), 1) + 1, wrong, nil
		}
	}
	return 0, nil, s.end
}
