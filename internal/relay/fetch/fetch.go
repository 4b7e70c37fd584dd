// Package fetch requests resources from any xDS server, once or as they change, with the client library. It opens
// no connection itself: the server is a [client.Transport].
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

// Options are the server and the resources to request.
type Options struct {
	Transport client.Transport // is closed in the end
	Node      *xds.Node
	Asked     []Asked

	// Refs returns the references of a resource, which are requested, too. Nil: none are.
	Refs func(*xds.Resource) []xds.Ref

	// Refuse is the error with which all resources are refused; empty: they are accepted.
	Refuse string

	// Timeout is how long All waits for the next answer. Settle is how long it waits for news when each
	// question has an answer. If news keeps coming, it waits for both times. In total [All] takes 10
	// times Timeout at most.
	Timeout, Settle time.Duration
}

// An Asked is a question: for resources of a type.
type Asked struct {
	Type  *xds.Type
	Names []string // may contain [xds.Wildcard]
}

// A Step is one step of the conversation. Exactly one of Event, Request, Response and End is set.
type Step struct {
	At       time.Time
	Type     *xds.Type
	Event    *client.Event // the new state of a resource
	Request  *xds.Request  // sent by the client
	Response *xds.Response // sent by the server
	End      error         // why the stream has ended; Type is nil for a stream of all types
}

// Watch yields the steps of the conversation until ctx is done. An error is the last element.
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

// A fetcher is one conversation with a server. One goroutine calls its methods.
type fetcher struct {
	Options
	ctx     context.Context
	cancel  context.CancelCauseFunc
	client  *client.Client
	steps   chan Step // from the goroutines to the caller of next
	running sync.WaitGroup
	asked   map[xds.Ref]bool
	types   map[string]*xds.Type // by URL: the same value for each, also for types that the table lacks
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
		Servers: []client.Server{{Transport: &tap{o.Transport, f.report, o.Refuse}}},
		Check:   check,
		Timeout: -1, // the caller has its own timeout
	})
	if err != nil {
		return nil, err
	}
	for _, a := range o.Asked {
		f.ask(a.Type, a.Names...)
	}
	return f, nil
}

// A refusal is the reason for refusing a resource.
type refusal string

func (r refusal) Error() string { return string(r) }

func (f *fetcher) end() {
	f.cancel(context.Canceled)
	_ = f.client.Close() // the client has no disk
	f.running.Wait()
}

// report passes a step to the caller of next, unless the conversation has ended.
func (f *fetcher) report(s Step) {
	s.At = time.Now()
	select {
	case f.steps <- s:
	case <-f.ctx.Done():
	}
}

// ask requests the names that were not requested yet.
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
		f.report(Step{Type: t, Event: &e})
	}
}

// row returns the same *xds.Type for each type URL.
func (f *fetcher) row(t *xds.Type) *xds.Type {
	switch {
	case t == nil:
		return nil
	case f.types[t.URL] == nil:
		f.types[t.URL] = t
	}
	return f.types[t.URL]
}

// next returns the next step, or a zero one at the time until; the zero time means no limit.
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

// follow requests the references of a resource. Where a wildcard is requested, names are not.
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
