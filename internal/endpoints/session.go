package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"time"
)

// at is the address and the port of an endpoint.
func (e *Endpoint) at() string { return net.JoinHostPort(e.Address, strconv.Itoa(e.Port)) }

// encode returns what is stored.
func encode(e Endpoint, ttl time.Duration) ([]byte, error) {
	return json.Marshal(Value{e, Duration(ttl)})
}

// A Session registers many endpoints of many clusters under one lease. It is made by [Registry.Session], and of
// one goroutine.
type Session struct {
	r       *Registry
	ttl     time.Duration
	lease   LeaseID
	renewed time.Time
}

// Session returns a session. If ttl is 0 it has no lease.
func (r *Registry) Session(ttl time.Duration) (*Session, error) {
	if ttl != 0 && (ttl < MinTTL || ttl > MaxTTL) {
		return nil, wrong("ttl", "must be %v to %v", MinTTL, MaxTTL)
	}
	return &Session{r: r, ttl: ttl}, nil
}

// An Op is a step of a session: an endpoint is put, or removed if Endpoint is nil; or one of the last two fields says what becomes of the
// cluster as a whole.
type Op struct {
	Cluster
	ID       string // "": the address and port of the endpoint
	Endpoint *Endpoint

	Replace []Registered // unless it is nil: all endpoints of the cluster, as [Registry.Replace] has it
	Release bool         // as [Registry.Release] has it; a cluster that is not registered is no error
}

func (o *Op) whole() bool { return o.Release || o.Replace != nil }

// Beat renews the lease, if it is time for that. [ErrNoLease] says that it has ended, and all that was put under it has gone:
// put it again.
func (s *Session) Beat(ctx context.Context) error {
	if s.lease == 0 || time.Since(s.renewed) < s.ttl/4 {
		return nil
	}
	err := s.r.engine.Renew(ctx, s.lease)
	if err == nil {
		s.renewed = time.Now()
	} else if errors.Is(err, ErrNoLease) {
		s.hold(0)
	}
	return err
}

// Apply takes steps in their order, those together that it can. errs has an error for each that was not taken; err is
// that of the engine, which may have made some of them.
func (s *Session) Apply(ctx context.Context, ops []Op) (errs map[int]error, err error) {
	errs = map[int]error{}
	for i := 0; i < len(ops) && err == nil; {
		n := i
		for n < len(ops) && !ops[n].whole() {
			n++
		}
		if err = s.apply(ctx, ops[i:n], func(at int, why error) { errs[i+at] = why }); err == nil && n < len(ops) {
			var why error
			if why, err = s.applyWhole(ctx, ops[n]); why != nil {
				errs[n] = why
			}
			n++
		}
		i = n
	}
	if errors.Is(err, ErrNoLease) {
		s.hold(0)
	}
	return errs, err
}

// applyWhole takes a step that is about a cluster as a whole. why says why it was not taken; err is that of the engine.
func (s *Session) applyWhole(ctx context.Context, op Op) (why, err error) {
	if op.Release {
		_, err = s.r.Release(ctx, op.Cluster)
		if _, is := errors.AsType[*FieldError](err); is {
			return err, nil
		}
		if errors.Is(err, ErrNone) {
			err = nil
		}
		return nil, err
	}
	c, all, why := s.r.checked(op.Cluster, op.Replace, 0)
	if why != nil {
		return why, nil
	}
	changes, _, why := s.r.differ(c, all, s.ttl, s.under(), true)
	if why != nil {
		return why, nil
	}
	return nil, s.write(ctx, changes)
}

// under is the lease of what is put.
func (s *Session) under() LeaseID {
	if s.ttl > 0 && s.lease == 0 {
		return fresh
	}
	return s.lease
}

// hold has the session have another lease; 0: none.
func (s *Session) hold(id LeaseID) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	delete(s.r.held, s.lease)
	if s.lease = id; id != 0 {
		s.r.held[id] = true
	}
}

// write writes changes, those that are put under the lease.
func (s *Session) write(ctx context.Context, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	now := time.Now()
	id, err := s.r.grant(ctx, changes, s.ttl)
	if err != nil {
		return err
	}
	if id != 0 {
		s.hold(id)
		s.renewed = now
	}
	return s.r.commit(ctx, changes, 0)
}

// End is to be called when no more comes. The lease of what was put lasts its time; one that has nothing ends.
func (s *Session) End(ctx context.Context) {
	id := s.lease
	if s.hold(0); id == 0 {
		return
	}
	s.r.mu.Lock()
	has := s.r.set.leases[id]
	s.r.mu.Unlock()
	if has == 0 {
		s.r.engine.Revoke(context.WithoutCancel(ctx), []LeaseID{id})
	}
}

// apply takes steps that are about one endpoint each, together.
func (s *Session) apply(ctx context.Context, ops []Op, refused func(at int, why error)) error {
	changes, lease := make([]Change, 0, len(ops)), s.under()
	b := batch{there: map[Key]int{}, opened: map[Cluster]bool{}, more: map[Cluster]int{}}
	for i, op := range ops {
		c, one, err := s.check(op)
		if err != nil {
			refused(i, err)
			continue
		}
		k := Key{c, one.ID}
		if op.Endpoint == nil {
			s.r.mu.Lock()
			b.remove(k, s.r.set.get(k))
			s.r.mu.Unlock()
			changes = append(changes, Change{Key: k})
			continue
		}
		v, err := encode(one.Endpoint, s.ttl)
		if err != nil {
			refused(i, err)
			continue
		}
		s.r.mu.Lock()
		at, has := s.r.set.clusters[c], s.r.set.get(k)
		_, touched := b.there[k]
		err = b.put(s.r, at, k, has, size(k.ID, v))
		claimed := at != nil && at.claimed
		s.r.mu.Unlock()
		if err != nil {
			refused(i, err)
			continue
		}
		if !claimed && !b.opened[c] {
			b.opened[c] = true
			changes = append(changes, Change{Key: Key{Cluster: c}, Value: []byte("{}")})
		}
		if has != nil && has.lease == lease && string(has.value) == string(v) && !touched {
			continue
		}
		changes = append(changes, Change{k, v, lease})
	}
	return s.write(ctx, changes)
}

// A batch is what was taken of steps that are not written yet: what comes after them has as much room less.
type batch struct {
	there    map[Key]int      // bytes after the steps, of those keys that they are about; 0: it has gone
	opened   map[Cluster]bool // claimed by a step
	clusters int              // how many are new
	more     map[Cluster]int  // endpoints
	all      int              // endpoints of all clusters more
	bytes    int              // of them
}

// put takes an endpoint of so many bytes; has is what the registry has. The error says that there is no room. The registry is
// locked.
func (b *batch) put(r *Registry, at *cluster, k Key, has *entry, bytes int) error {
	was := b.was(k, has)
	clusters, more, all, grown := 0, 0, 0, 0
	if was == 0 {
		more, all = b.more[k.Cluster]+1, b.all+1
		if at == nil && !b.opened[k.Cluster] {
			clusters = b.clusters + 1
		}
	}
	if bytes > was {
		grown = b.bytes + bytes - was
	}
	if err := r.fits(at, clusters, more, all, grown); err != nil {
		return err
	}
	b.clusters = max(b.clusters, clusters)
	b.there[k] = bytes
	b.bytes += bytes - was
	if was == 0 {
		b.more[k.Cluster], b.all = more, all
	}
	return nil
}

// remove takes that an endpoint goes.
func (b *batch) remove(k Key, has *entry) {
	was := b.was(k, has)
	if was > 0 {
		b.more[k.Cluster]--
		b.all--
	}
	b.bytes -= was
	b.there[k] = 0
}

// was is how many bytes there are of a key, before a step.
func (b *batch) was(k Key, has *entry) int {
	if bytes, touched := b.there[k]; touched || has == nil {
		return bytes
	}
	return has.bytes
}

// check returns what a step is about in the one way to write it.
func (s *Session) check(op Op) (Cluster, Registered, error) {
	if op.Endpoint != nil {
		c, all, err := s.r.checked(op.Cluster, []Registered{{op.ID, *op.Endpoint}}, 0)
		if e, ok := errors.AsType[*FieldError](err); ok {
			const first = "endpoints[0]."
			if len(e.Field) > len(first) && e.Field[:len(first)] == first {
				err = &FieldError{e.Field[len(first):], e.Message}
			}
		}
		if err != nil {
			return c, Registered{}, err
		}
		return c, all[0], nil
	}
	c, err := op.Cluster.normal()
	if err == nil {
		err = word("id", op.ID, false)
	}
	return c, Registered{ID: op.ID}, err
}
