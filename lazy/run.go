package lazy

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A result is what a resolver made of an entry.
type result struct {
	*entry
	resource *xds.Resource // nil: there is none
	err      error
}

// Run looks for names until ctx is done, and returns when all resolvers have
// returned. It must not run twice at the same time.
func (s *Source) Run(ctx context.Context) {
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var batch []result
		select {
		case <-ctx.Done():
			for ; s.running > 0; s.running-- {
				s.putBack(<-results)
			}
			return
		case <-s.wake:
		case <-timer.C:
		case r := <-results:
			batch = s.gather(r, results)
		}
		if p := panics.Do(func() { s.decide(batch) }); p != nil {
			p.Log(s.log, "findings")
			s.fail(batch)
		}
		s.start(ctx, results)
		timer.Reset(s.pause())
	}
}

// gather returns a result and others that wait, to be committed together.
func (s *Source) gather(r result, results <-chan result) []result {
	batch := []result{r}
	for {
		s.running--
		select {
		case r := <-results:
			batch = append(batch, r)
		default:
			return batch
		}
	}
}

// putBack has an entry looked for by the next Run.
func (s *Source) putBack(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.phase = resting; s.current(r.entry) {
		s.enqueue(r.entry)
	}
}

// start begins to look for what waits in the queue.
func (s *Source) start(ctx context.Context, results chan<- result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ; n < len(s.queue) && s.running < s.parallel; n++ {
		if e := s.queue[n]; s.current(e) {
			e.phase = running
			s.running++
			go s.look(ctx, e, Query{e.group, e.typ, e.name}, results)
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
}

func (s *Source) look(ctx context.Context, e *entry, q Query, results chan<- result) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	var r *xds.Resource
	var err error
	if p := panics.Do(func() { r, err = s.resolver(ctx, q) }); p != nil {
		p.Log(s.log, "resolver", slog.String("type", q.Type.String()), slog.String("name", q.Name), slog.String("group", q.Group))
		r, err = nil, p
	}
	if err == nil && r != nil {
		err = q.check(r)
	}
	results <- result{e, r, err}
}

// check returns an error if a resource is no answer to the query.
func (q Query) check(r *xds.Resource) error {
	if err := r.CheckType(q.Type); err != nil {
		return err
	}
	if r.Name != q.Name && !slices.Contains(r.Aliases, q.Name) {
		return errors.New("the resolver returned a resource with another name: " + r.Name)
	}
	return nil
}

// pause returns how long nothing is due.
func (s *Source) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		return time.Hour
	}
	return time.Until(s.due[0].at)
}

// decide makes of results, and of what is due, what streams see.
//
// What is found counts as found after its commit, when a view that does not have
// it is an old one; what is absent counts as that before the commit that wakes
// those who are to be told.
func (s *Source) decide(batch []result) {
	now := time.Now()
	failed := s.put(batch)
	s.commit(s.apply(batch, failed, now))
	s.tell(failed, now)
}

// apply notes what results are and what is due, and returns what is to be
// committed of it.
func (s *Source) apply(batch, failed []result, now time.Time) (c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		if r.err == nil && r.resource == nil && s.current(r.entry) {
			r.rest(now.Add(s.absence), 0)
			s.lose(r.entry, &c)
		}
	}
	for _, r := range failed {
		if s.current(r.entry) {
			r.rest(now.Add(backoff(r.failed)), r.failed+1)
			s.settle(r.entry)
		}
	}
	for _, r := range batch {
		if r.again && s.current(r.entry) {
			r.again = false
			s.enqueue(r.entry)
		}
	}
	for len(s.due) > 0 && !s.due[0].at.After(now) {
		s.pass(s.due[0].entry, now, &c)
	}
	s.drop(&c)
	return c
}

// fail has what was looked for looked for again later.
func (s *Source) fail(batch []result) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		if r.phase == running && s.current(r.entry) {
			r.rest(now.Add(backoff(r.failed)), r.failed+1)
			s.settle(r.entry)
		}
	}
}

// rest ends the search for an entry; failed is how often it has failed.
func (e *entry) rest(next time.Time, failed int) {
	e.phase, e.next, e.failed = resting, next, failed
}

// backoff returns when to look again after so many failures and one more.
func backoff(failed int) time.Duration {
	d := min(100*time.Millisecond<<min(failed, 10), 30*time.Second)
	return d/2 + rand.N(d)
}

// lose decides that a name does not exist.
func (s *Source) lose(e *entry, c *change) {
	s.let(e)
	e.status = absent
	c.touched = append(c.touched, e)
	s.settle(e)
}

// pass does what is due of an entry.
func (s *Source) pass(e *entry, now time.Time, c *change) {
	if e.status == undecided && !now.Before(e.asked.Add(s.patience)) {
		s.lose(e, c) // and looks for it all the same
	}
	switch {
	case e.next.IsZero() || now.Before(e.next):
	case e.status == absent && e.users == 0:
		s.forget(e)
	default:
		s.enqueue(e)
	}
}

// A change is what a commit does about names that are not found.
type change struct {
	touched []*entry
	deleted []*holding
}

// drop takes over what nobody is interested in any more.
func (s *Source) drop(c *change) {
	for _, h := range s.orphans {
		if len(h.names) == 0 && s.found[h.key] == h {
			delete(s.found, h.key)
			c.deleted = append(c.deleted, h)
		}
	}
	s.orphans = nil
}

func (s *Source) commit(c change) {
	if len(c.touched)+len(c.deleted) == 0 {
		return
	}
	_, err := s.store.Update(func(tx *store.Tx) error {
		for _, h := range c.deleted {
			g := tx.Group(h.group)
			if r := g.Lookup(h.typ, h.name); r != nil && r.OnDemand && r.Sum == h.sum { // or it is somebody else's now
				g.Delete(h.typ, h.name)
			}
		}
		for _, e := range c.touched {
			tx.Group(e.group).Notify(e.typ, e.name)
		}
		return nil
	})
	if err != nil {
		panic(err) // these names were looked for, so they are good
	}
}

// tell logs that resolvers fail.
func (s *Source) tell(failed []result, now time.Time) {
	if s.failures += len(failed); len(failed) == 0 || now.Sub(s.told) < 10*time.Second {
		return
	}
	r := failed[0]
	s.log.Warn("cannot resolve a resource", "type", r.typ.String(), "name", r.name, "group", r.group, "error", r.err, "failures", s.failures)
	s.told, s.failures = now, 0
}
