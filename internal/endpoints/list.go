package endpoints

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/chancery-xds/chancery/internal/text"
)

// BadMembers has the errors of those endpoints of a list that were refused. The others are registered.
type BadMembers []*FieldError

func (b BadMembers) Error() string {
	return fmt.Sprintf("%d refused, such as %v", len(b), b[0])
}

// A member is an endpoint of a list in its stored form.
type member struct {
	id    string
	value []byte // nil: the registration stays as it is
}

// list returns the stored form of a list. If whole is set, the list has all endpoints of a cluster, and may have bad
// members: refused has their errors. Registrations that a bad member may mean are added to the list, so that they
// are not removed (SAFE-17).
func (r *Registry) list(c Cluster, all []Registered, ttl time.Duration, whole bool) (_ Cluster, list []member, refused BadMembers, err error) {
	c, good, bad, refused, err := r.checked(c, all, ttl)
	if err == nil && len(refused) > 0 && (!whole || len(good) == 0) {
		err = refused[0]
	}
	if err != nil {
		return c, nil, nil, err
	}
	list = make([]member, len(good))
	for i, one := range good {
		list[i].id = one.ID
		list[i].value, err = encode(one.Endpoint, ttl)
		if err != nil {
			return c, nil, nil, err
		}
	}
	for _, e := range r.meant(c, bad, good) {
		kept := member{id: e.id}
		switch {
		case e.lease == 0 || ttl == 0: // the lease of the list does not apply
		case e.value != nil && e.ttl == ttl:
			kept.value = e.value
		default:
			kept.value, err = encode(e.endpoint(), ttl)
			if err != nil {
				return c, nil, nil, err
			}
		}
		list = append(list, kept)
	}
	return c, list, refused, nil
}

// checked returns the canonical cluster, the good members of a list in canonical form, and the bad ones with their
// errors.
func (r *Registry) checked(c Cluster, all []Registered, ttl time.Duration) (_ Cluster, good, bad []Registered, refused BadMembers, err error) {
	c, err = c.normal()
	switch {
	case err != nil:
	case r.opts.Known != nil && !r.opts.Known(c.Group):
		err = fmt.Errorf("group %q: %w", c.Group, ErrNoGroup)
	case ttl != 0 && (ttl < MinTTL || ttl > MaxTTL):
		err = wrong("ttl", "must be %v to %v", MinTTL, MaxTTL)
	case len(all) > r.opts.PerCluster:
		err = &LimitError{"endpoints of a cluster", r.opts.PerCluster}
	}
	if err != nil {
		return c, nil, nil, nil, err
	}
	seen := make(map[string]int, len(all))
	good = make([]Registered, 0, len(all))
	for i, one := range all {
		is, err := one.normal()
		if first, twice := seen[is.ID]; err == nil && twice {
			err = wrong("id", "%q is also the ID of endpoints[%d]", text.Head(is.ID, maxQuoted), first)
		}
		if err == nil {
			seen[is.ID] = i
			good = append(good, is)
			continue
		}
		of := &FieldError{fmt.Sprintf("endpoints[%d]", i), err.Error()}
		if e, ok := errors.AsType[*FieldError](err); ok {
			of.Message = e.Message
			if e.Field != "" {
				of.Field += "." + e.Field
			}
		}
		refused, bad = append(refused, of), append(bad, one)
	}
	return c, good, bad, refused, nil
}

// normal returns the canonical form of a member of a list, or the reason why it is invalid.
func (one Registered) normal() (Registered, error) {
	if one.Bad != nil {
		return one, one.Bad
	}
	var err error
	one.Endpoint, err = one.Endpoint.normal()
	if err != nil {
		return one, err
	}
	if one.ID == "" {
		one.ID = one.Endpoint.at()
	}
	return one, word("id", one.ID, false)
}

// meant returns those registrations of a cluster that bad members of a list may mean: those with the ID or the address
// of one. If a bad member has no readable address and no registered ID, it may mean any. A registration whose ID or
// address a good member has is not meant.
func (r *Registry) meant(c Cluster, bad, good []Registered) (some []*entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.set.clusters[c]
	if at == nil || len(bad) == 0 {
		return nil
	}
	listed, ids, addrs := map[string]bool{}, map[string]bool{}, map[netip.AddrPort]bool{}
	for _, one := range good {
		listed[one.ID] = true
		listed[one.Endpoint.at()] = true
	}
	unclear := false
	for _, one := range bad {
		ids[one.ID] = true
		if addr, err := netip.ParseAddr(one.Address); err == nil && isHost(addr.Unmap()) {
			port := one.Port
			if port < 1 || port > math.MaxUint16 {
				port = 0 // each port
			}
			addrs[netip.AddrPortFrom(addr, uint16(port))] = true
		} else if _, known := at.find(one.ID); !known {
			unclear = true
		}
	}
	for _, e := range at.entries {
		isMeant := unclear || ids[e.id] || addrs[e.addr] || addrs[netip.AddrPortFrom(e.addr.Addr(), 0)]
		if isMeant && !listed[e.id] && !listed[e.Endpoint.at()] {
			some = append(some, e)
		}
	}
	return some
}
