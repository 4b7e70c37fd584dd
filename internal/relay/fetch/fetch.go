// Package fetch asks any xDS server what it has, once or as it changes, by the client library. It
// opens no connection itself: the server is a [client.Transport].
package fetch

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

// Options say who is asked for what.
type Options struct {
	Transport client.Transport // is closed in the end
	Node      *xds.Node
	Asked     []Asked

	// Refs returns what a resource refers to, which is asked for, too. Nil: nothing is.
	Refs func(*xds.Resource) []xds.Ref

	// Refuse is why all that comes is refused; empty: it is not.
	Refuse string

	// Timeout is how long All waits for the next answer, and Settle for what is new when each
	// question has one. What is new without end is waited for as long as both, and all in all
	// [All] takes 10 times Timeout at most.
	Timeout, Settle time.Duration
}

// An Asked is a question: for resources of a type.
type Asked struct {
	Type  *xds.Type
	Names []string // may have [xds.Wildcard]
}

// A Step is what happens next. One of Event, Request, Response and End is set.
type Step struct {
	At       time.Time
	Type     *xds.Type
	Event    *client.Event // what became of a resource
	Request  *xds.Request  // what the client sent
	Response *xds.Response // what came
	End      error         // why the stream has ended; Type is nil if it was of all types
}

// Watch yields what happens until ctx is done. An error is the last.
func Watch(ctx context.Context, o Options) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		f, err := begin(ctx, o)
		if err != nil {
			yield(Step{}, err)
			return
		}
		defer f.end()
		for {
			s, err := f.next(time.Time{})
			if err != nil {
				if ctx.Err() == nil {
					yield(Step{}, err)
				}
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// A fetcher is one conversation with a server. Its methods are called by one goroutine.
type fetcher struct {
	Options
	ctx     context.Context
	cancel  context.CancelCauseFunc
	client  *client.Client
	steps   chan Step // of the goroutines, to the one that calls next
	running sync.WaitGroup
	asked   map[xds.Ref]bool
	types   map[string]*xds.Type // by URL: one row for each, also of those that the table does not list
}

func begin(ctx context.Context, o Options) (*fetcher, error) {
	f := &fetcher{Options: o, steps: make(chan Step), asked: map[xds.Ref]bool{}, types: map[string]*xds.Type{}}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	var check func(*xds.Resource) error
	if o.Refuse != "" {
		check = func(*xds.Resource) error { return refusal(o.Refuse) }
	}
	var err error
	f.client, err = client.New(client.Config{
		Node:    o.Node,
		Servers: []client.Server{{Transport: &tap{o.Transport, f.tell, o.Refuse}}},
		Check:   check,
		Timeout: -1, // who asks knows how long he waits
	})
	if err != nil {
		return nil, err
	}
	for _, a := range o.Asked {
		f.ask(a.Type, a.Names...)
	}
	return f, nil
}

// A refusal is why something is refused.
type refusal string

func (r refusal) Error() string { return string(r) }

func (f *fetcher) end() {
	f.cancel(context.Canceled)
	_ = f.client.Close() // nothing is kept that could be lost
	f.running.Wait()
}

// tell tells of a step, unless nobody is there to be told any more.
func (f *fetcher) tell(s Step) {
	s.At = time.Now()
	select {
	case f.steps <- s:
	case <-f.ctx.Done():
	}
}

// ask asks for what was not asked for yet.
func (f *fetcher) ask(t *xds.Type, names ...string) {
	t = f.row(t)
	var fresh []string
	for _, n := range names {
		if r := (xds.Ref{Type: t, Name: n}); !f.asked[r] {
			f.asked[r] = true
			fresh = append(fresh, n)
		}
	}
	if len(fresh) == 0 {
		return
	}
	f.running.Go(func() {
		if p := panics.Do(func() { f.watch(t, fresh) }); p != nil {
			f.cancel(p)
		}
	})
}

func (f *fetcher) watch(t *xds.Type, names []string) {
	for e, err := range f.client.Watch(f.ctx, t, names...) {
		if err != nil {
			f.cancel(err)
			return
		}
		f.tell(Step{Type: t, Event: &e})
	}
}

// row is the same row for the same type.
func (f *fetcher) row(t *xds.Type) *xds.Type {
	switch {
	case t == nil:
		return nil
	case f.types[t.URL] == nil:
		f.types[t.URL] = t
	}
	return f.types[t.URL]
}

// next returns the next step, or a zero one if none comes until then; the zero time is never.
func (f *fetcher) next(until time.Time) (Step, error) {
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case s := <-f.steps:
		s.Type = f.row(s.Type)
		f.follow(s)
		return s, nil
	case <-late:
		return Step{}, nil
	case <-f.ctx.Done():
		return Step{}, context.Cause(f.ctx)
	}
}

// follow asks for what a resource refers to. Where anything of a type is asked for, no name is.
func (f *fetcher) follow(s Step) {
	if f.Refs == nil || s.Event == nil || s.Event.Kind != client.Updated {
		return
	}
	names := map[*xds.Type][]string{}
	for _, r := range f.Refs(s.Event.Resource) {
		if r.Name != xds.Wildcard && !f.asked[xds.Ref{Type: r.Type, Name: xds.Wildcard}] {
			names[r.Type] = append(names[r.Type], r.Name)
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(names), func(a, b *xds.Type) int { return a.Rank() - b.Rank() }) {
		f.ask(t, names[t]...)
	}
}
