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

// A result is the result of resolving an entry.
type result struct {
	*entry
	resource *xds.Resource // nil: the resource does not exist
	err      error
}

// Run resolves names until ctx is done. It returns when all calls of the resolver have returned. Do
// not call Run twice at the same time.
func (s *Source) Run(ctx context.Context) {
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var batch []result
		select {
		case <-ctx.Done():
			for ; s.running > 0; s.running-- {
				s.requeue(<-results)
			}
			return
		case <-s.wake:
		case <-timer.C:
		case r := <-results:
			batch = s.gather(r, results)
		}
		if p := panics.Do(func() { s.process(batch) }); p != nil {
			p.Log(s.log, "findings")
			s.retryLater(batch)
		}
		s.start(ctx, results)
		timer.Reset(s.untilDue())
	}
}

// gather returns a result together with all other results that are ready, so that one transaction
// commits them.
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

// requeue queues an entry for the next Run.
func (s *Source) requeue(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.phase = notQueued
	if s.isCurrent(r.entry) {
		s.enqueue(r.entry)
	}
}

// start starts to resolve queued entries.
func (s *Source) start(ctx context.Context, results chan<- result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ; n < len(s.queue) && s.running < s.parallel; n++ {
		if e := s.queue[n]; s.isCurrent(e) {
			e.phase = running
			s.running++
			go s.callResolver(ctx, e, Query{e.group, e.typ, e.name}, results)
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
}

func (s *Source) callResolver(ctx context.Context, e *entry, q Query, results chan<- result) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
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

// check returns an error if a resource does not fit the query.
func (q Query) check(r *xds.Resource) error {
	if err := r.CheckType(q.Type); err != nil {
		return err
	}
	if r.Name != q.Name && !slices.Contains(r.Aliases, q.Name) {
		return errors.New("the resolver returned a resource with another name: " + r.Name)
	}
	return nil
}

// untilDue returns the time until the next work is due.
func (s *Source) untilDue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		return time.Hour
	}
	return time.Until(s.due[0].at)
}

// process applies results and due work, and makes them visible to streams.
//
// The order matters. The status "found" is set after the commit: a view without the resource is then
// older. The status "absent" is set before the commit that wakes the streams which must be informed.
func (s *Source) process(batch []result) {
	now := time.Now()
	failed := s.put(batch)
	s.commit(s.apply(batch, failed, now))
	s.logFailures(failed, now)
}

// apply applies results and due work to the entries. It returns the change that must be committed.
func (s *Source) apply(batch, failed []result, now time.Time) (c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		if r.err == nil && r.resource == nil && s.isCurrent(r.entry) {
			r.finish(now.Add(s.absentTTL), 0)
			s.markAbsent(r.entry, &c)
		}
	}
	for _, r := range failed {
		if s.isCurrent(r.entry) {
			r.finish(now.Add(backoff(r.failures)), r.failures+1)
			s.reschedule(r.entry)
		}
	}
	for _, r := range batch {
		if r.refresh && s.isCurrent(r.entry) {
			r.refresh = false
			s.enqueue(r.entry)
		}
	}
	for len(s.due) > 0 && !s.due[0].at.After(now) {
		s.runDue(s.due[0].entry, now, &c)
	}
	s.takeOrphans(&c)
	return c
}

// retryLater schedules another try for the entries of a batch.
func (s *Source) retryLater(batch []result) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		if r.phase == running && s.isCurrent(r.entry) {
			r.finish(now.Add(backoff(r.failures)), r.failures+1)
			s.reschedule(r.entry)
		}
	}
}

// finish ends the present try; failures is the new count of consecutive failures.
func (e *entry) finish(next time.Time, failed int) {
	e.phase, e.nextTry, e.failures = notQueued, next, failed
}

// backoff returns the wait after one more failure.
func backoff(failed int) time.Duration {
	d := min(100*time.Millisecond<<min(failed, 10), 30*time.Second)
	return d/2 + rand.N(d)
}

// markAbsent decides that a name does not exist.
func (s *Source) markAbsent(e *entry, c *change) {
	s.detach(e)
	e.status = absent
	c.absent = append(c.absent, e)
	s.reschedule(e)
}

// runDue does the due work of an entry.
func (s *Source) runDue(e *entry, now time.Time, c *change) {
	if e.status == undecided && !now.Before(e.waitingSince.Add(s.timeout)) {
		s.markAbsent(e, c) // the resolver continues
	}
	switch {
	case e.nextTry.IsZero() || now.Before(e.nextTry):
	case e.status == absent && e.users == 0:
		s.forget(e)
	default:
		s.enqueue(e)
	}
}

// A change lists names that became absent and resources that are not needed any more.
type change struct {
	absent  []*entry
	deleted []*storedResource
}

// takeOrphans moves resources without names into the change.
func (s *Source) takeOrphans(c *change) {
	for _, h := range s.orphans {
		if len(h.names) == 0 && s.stored[h.key] == h {
			delete(s.stored, h.key)
			c.deleted = append(c.deleted, h)
		}
	}
	s.orphans = nil
}

func (s *Source) commit(c change) {
	if len(c.absent)+len(c.deleted) == 0 {
		return
	}
	_, err := s.store.Update(func(tx *store.Tx) error {
		for _, h := range c.deleted {
			tx.Group(store.UnderlayOf(h.group)).Delete(h.typ, h.name)
		}
		for _, e := range c.absent {
			tx.Group(store.UnderlayOf(e.group)).Notify(e.typ, e.name)
		}
		return nil
	})
	if err != nil {
		panic(err) // the names were resolved before, so they are valid
	}
}

// logFailures logs failures of the resolver.
func (s *Source) logFailures(failed []result, now time.Time) {
	s.failures += len(failed)
	if len(failed) == 0 || now.Sub(s.failuresLogged) < 10*time.Second {
		return
	}
	r := failed[0]
	s.log.Warn("cannot resolve a resource", "type", r.typ.String(), "name", r.name, "group", r.group, "error", r.err, "failures", s.failures)
	s.failuresLogged, s.failures = now, 0
}
