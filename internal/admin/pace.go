package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	minPace = 100 * time.Millisecond
	maxPace = 10 * time.Second

	// costShare is the smallest pause between two answers, as a multiple of the time that the last one took, up to
	// maxPause. So a question takes less than 2 % of a core, however many pages ask it.
	costShare = 60
	maxPause  = 5 * time.Second

	maxDemands = 64  // maximum number of different demands with a pace; others get their own answers
	pacedRows  = 200 // maximum limit of a list with a pace: any number of callers may be slow to read it
)

// pace returns the parameter "pace"; 0 if it is absent.
func (q *query) pace() time.Duration {
	d := q.duration(paramPace.name, 0, maxPace)
	if q.values.Has(paramPace.name) && d < minPace {
		q.fail(paramPace.name, fmt.Sprintf("must be a duration between %v and %v", minPace, maxPace), "")
	}
	return d
}

// paced returns a handler that gives one answer of f to all callers that ask the same with a pace. No answer is
// older than its question: callers wait until the pace has passed since the last answer.
func (s *Server) paced(f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := queryOf(r)
		pace := q.pace()
		if pace > 0 && q.limit(pacedRows) > pacedRows {
			q.fail(paramLimit.name, fmt.Sprintf("must be at most %d with pace", pacedRows), "")
		}
		if q.err != nil {
			return q.err
		}
		if pace == 0 {
			return f(w, r)
		}
		key := r.URL.Path + "?" + q.values.Encode()
		for {
			one, err := s.pacer.answer(r.Context(), key, pace, func(w http.ResponseWriter) error { return f(w, r) })
			switch {
			case errors.Is(err, errLost) && r.Context().Err() == nil:
				continue
			case errors.Is(err, errLost):
				return errEnding
			case err != nil:
				return err
			}
			maps.Copy(w.Header(), one.header)
			w.WriteHeader(one.code)
			_, _ = w.Write(one.body)
			return nil
		}
	}
}

// A pacer shares answers among callers. The zero value is ready.
type pacer struct {
	mu      sync.Mutex // not held while an answer is made
	demands map[string]*demand
}

// A demand is one question of callers, with the time and the cost of its last answer. The lock of the pacer guards it.
type demand struct {
	next *shared       // the answer that callers wait for, not begun yet; nil: none waits
	last time.Time     // begin of the last answer
	cost time.Duration // duration of the last answer
}

// A shared is an answer for several callers. The other fields are set when done is closed.
type shared struct {
	done   chan struct{}
	header http.Header
	made
	err error // [errLost]: the caller that should make the answer left
}

var errLost = errors.New("the caller left")

// Header implements [http.ResponseWriter].
func (s *shared) Header() http.Header { return s.header }

// answer returns the next answer to a question. The first caller that waits for it makes it.
func (p *pacer) answer(ctx context.Context, key string, pace time.Duration, f func(http.ResponseWriter) error) (*shared, error) {
	d, one, at := p.enter(key, pace)
	if d != nil {
		p.serve(ctx, d, one, at, f)
	}
	select {
	case <-one.done:
		return one, one.err
	case <-ctx.Done():
		return one, errLost
	}
}

// enter returns the answer to wait for. If the caller is the first to wait, it also returns the demand: the caller must
// make the answer at the given time.
func (p *pacer) enter(key string, pace time.Duration) (d *demand, one *shared, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d = p.demands[key]
	if d == nil {
		d = &demand{}
		maps.DeleteFunc(p.demands, func(_ string, d *demand) bool { return d.next == nil && time.Since(d.last) > maxPace })
		if p.demands == nil {
			p.demands = map[string]*demand{}
		}
		if len(p.demands) < maxDemands {
			p.demands[key] = d
		}
	}
	if d.next != nil {
		return nil, d.next, at
	}
	d.next = &shared{done: make(chan struct{}), header: http.Header{}, err: errLost}
	return d, d.next, d.last.Add(max(pace, min(maxPause, costShare*d.cost)))
}

// serve waits until the given time, and makes the answer. A caller that comes meanwhile waits for the next answer, because
// this one may lack a change that the caller knows.
func (p *pacer) serve(ctx context.Context, d *demand, one *shared, at time.Time, f func(http.ResponseWriter) error) {
	defer close(one.done)
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	began := time.Now()
	left := ctx.Err() != nil
	p.update(func() {
		d.next = nil
		if !left {
			d.last = began
		}
	})
	if left {
		return
	}
	err := f(one)
	if ctx.Err() == nil {
		one.err = err
	}
	p.update(func() { d.cost = time.Since(began) })
}

// update changes a demand.
func (p *pacer) update(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
}
