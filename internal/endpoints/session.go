package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"
)

// at is the address and the port of an endpoint.
func (e *Endpoint) at() string { return net.JoinHostPort(e.Address, strconv.Itoa(e.Port)) }

// encode encodes the stored value.
func encode(e Endpoint, ttl time.Duration) ([]byte, error) {
	return json.Marshal(Value{e, Duration(ttl)})
}

// A Session registers many endpoints of many clusters under one lease. [Registry.Session] makes it. One
// goroutine may use it.
type Session struct {
	r       *Registry
	ttl     time.Duration
	lease   LeaseID
	renewed time.Time
}

// Session returns a session. If ttl is 0, the endpoint has no lease.
func (r *Registry) Session(ttl time.Duration) (*Session, error) {
	if ttl != 0 && (ttl < MinTTL || ttl > MaxTTL) {
		return nil, wrong("ttl", "must be %v to %v", MinTTL, MaxTTL)
	}
	return &Session{r: r, ttl: ttl}, nil
}

// An Op is one step of a session. It puts an endpoint, or removes it if Endpoint is nil. With Replace or
// Release it changes the whole cluster.
type Op struct {
	Cluster
	ID       string // "": the address and port of the endpoint
	Endpoint *Endpoint

	Replace []Registered // if not nil: all endpoints of the cluster, as in [Registry.Replace]
	Release bool         // as in [Registry.Release]; a cluster that is not registered is not an error
}

func (o *Op) whole() bool { return o.Release || o.Replace != nil }

// KeepAlive renews the lease when it is due. If the lease has ended, the error is [ErrNoLease]. Then all
// registrations under it are gone: the caller must put them again.
func (s *Session) KeepAlive(ctx context.Context) error {
	if s.lease == 0 || time.Since(s.renewed) < s.ttl/4 {
		return nil
	}
	err := s.r.engine.Renew(ctx, s.lease)
	if err == nil {
		s.renewed = time.Now()
	} else if errors.Is(err, ErrNoLease) {
		s.setLease(0)
	}
	return err
}

// Apply applies steps in order, and joins adjacent ones into one write where possible. errs has an error
// for each refused step, and [BadMembers] for a step with refused members whose other members were applied. err is an
// error of the engine, which may have written some of the steps.
func (s *Session) Apply(ctx context.Context, ops []Op) (errs map[int]error, err error) {
	errs = map[int]error{}
	for i := 0; i < len(ops) && err == nil; {
		n := i
		for n < len(ops) && !ops[n].whole() {
			n++
		}
		err = s.apply(ctx, ops[i:n], func(at int, why error) { errs[i+at] = why })
		if err == nil && n < len(ops) {
			var why error
			why, err = s.applyWhole(ctx, ops[n])
			if why != nil {
				errs[n] = why
			}
			n++
		}
		i = n
	}
	if errors.Is(err, ErrNoLease) {
		s.setLease(0)
	}
	return errs, err
}

// applyWhole applies a step about a whole cluster. why is the reason for a refusal; err is an error of
// the engine.
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
	c, list, refused, why := s.r.list(op.Cluster, op.Replace, s.ttl, true)
	if why != nil {
		return why, nil
	}
	changes, _, why := s.r.differ(c, list, s.under(), true)
	if why != nil {
		return why, nil
	}
	err = s.write(ctx, changes)
	if err == nil && len(refused) > 0 {
		why = refused
	}
	return why, err
}

// under is the lease for new registrations.
func (s *Session) under() LeaseID {
	if s.ttl > 0 && s.lease == 0 {
		return newLease
	}
	return s.lease
}

// setLease changes the lease of the session; 0: none.
func (s *Session) setLease(id LeaseID) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	delete(s.r.held, s.lease)
	s.lease = id
	if id != 0 {
		s.r.held[id] = true
	}
}

// write writes changes of the session.
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
		s.setLease(id)
		s.renewed = now
	}
	return s.r.commit(ctx, changes, 0)
}

// End must be called when the session ends. Its registrations stay until the lease expires. A lease
// without registrations ends at once.
func (s *Session) End(ctx context.Context) {
	id := s.lease
	s.setLease(0)
	if id == 0 {
		return
	}
	s.r.mu.Lock()
	has := s.r.set.leases[id]
	s.r.mu.Unlock()
	if has == 0 {
		s.r.engine.Revoke(context.WithoutCancel(ctx), []LeaseID{id})
	}
}

// apply applies steps about single endpoints in one write.
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

// A batch sums up the accepted steps that are not written yet, so that the limits hold for later steps.
type batch struct {
	there    map[Key]int      // the size of each touched key after the steps, in bytes; 0: removed
	opened   map[Cluster]bool // claimed by a step
	clusters int              // the number of new clusters
	more     map[Cluster]int  // additional endpoints
	all      int              // additional endpoints of all clusters
	bytes    int              // additional bytes
}

// put accepts an endpoint of the given size, or returns an error if there is no room. has is the current
// entry. The registry is locked.
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

// remove accepts the removal of an endpoint.
func (b *batch) remove(k Key, has *entry) {
	was := b.was(k, has)
	if was > 0 {
		b.more[k.Cluster]--
		b.all--
	}
	b.bytes -= was
	b.there[k] = 0
}

// was returns the size of a key before a step, in bytes.
func (b *batch) was(k Key, has *entry) int {
	if bytes, touched := b.there[k]; touched || has == nil {
		return bytes
	}
	return has.bytes
}

// check returns the target of a step in canonical form.
func (s *Session) check(op Op) (Cluster, Registered, error) {
	if op.Endpoint != nil {
		c, all, _, refused, err := s.r.checked(op.Cluster, []Registered{{ID: op.ID, Endpoint: *op.Endpoint}}, 0)
		if len(refused) > 0 {
			err = &FieldError{strings.TrimPrefix(refused[0].Field, "endpoints[0]."), refused[0].Message}
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
