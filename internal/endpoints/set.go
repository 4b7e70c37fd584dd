package endpoints

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

const defaultGroup = "default"

// A Value is what is stored of a registration, as JSON.
type Value struct {
	Endpoint
	TTL Duration `json:"ttl,omitzero"` // of its lease; 0: it has none
}

// A Duration is written as "30s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(b []byte) error {
	t, err := time.ParseDuration(string(b))
	*d = Duration(t)
	return err
}

// A Set is what is registered: a value. It says which assignments that makes, and which of them have changed
// since somebody last took them. It is not safe for concurrent use; the zero value is empty.
type Set struct {
	clusters map[Cluster]*cluster
	dirty    map[Cluster]bool
	leases   map[LeaseID]int // how many entries have one
	len      int             // entries
	bytes    int             // of them
}

// A cluster has entries in the order of their IDs.
type cluster struct {
	claimed bool // its own key is there
	entries []*entry
	parts   []*part                // the same by place, in the order of places
	addrs   map[netip.AddrPort]int // how many entries have an address
	twice   int                    // entries whose address another one has, too
}

// has notes that there is one more entry with an address, or one less.
func (c *cluster) has(addr netip.AddrPort, more int) {
	if c.addrs == nil {
		c.addrs = map[netip.AddrPort]int{}
	}
	was := c.addrs[addr]
	c.addrs[addr] = was + more
	if was+more == 0 {
		delete(c.addrs, addr)
	}
	c.twice += max(was+more-1, 0) - max(was-1, 0)
}

// An entry is a registered endpoint. It is not changed once made.
type entry struct {
	id       string
	value    []byte // as stored
	lease    LeaseID
	ttl      time.Duration
	addr     netip.AddrPort
	lb       []byte // as served: a field of its locality
	bytes    int    // as size says
	Endpoint        // without its metadata, which takes many times as much as what is stored of it
}

// size is how much is stored of an endpoint.
func size(id string, value []byte) int { return len(id) + len(value) }

// endpoint returns all of it.
func (e *entry) endpoint() Endpoint {
	all := e.Endpoint
	var v Value
	if e.value != nil && json.Unmarshal(e.value, &v) == nil {
		all.Metadata = v.Metadata
	}
	return all
}

// newEntry reads what is stored. The error says what is wrong with it.
func newEntry(id string, value []byte, lease LeaseID) (*entry, error) {
	var v Value
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, err
	}
	e, err := v.Endpoint.normal()
	if err != nil {
		return nil, err
	}
	if err := word("id", id, false); err != nil {
		return nil, err
	}
	addr := netip.AddrPortFrom(netip.MustParseAddr(e.Address), uint16(e.Port))
	lb := appendMessage(nil, 2, e.encode())
	e.Metadata = nil
	return &entry{id: id, value: value, lease: lease, ttl: time.Duration(v.TTL), addr: addr, lb: lb, bytes: size(id, value), Endpoint: e}, nil
}

// find returns where an ID is, or would be.
func (c *cluster) find(id string) (int, bool) {
	if c == nil {
		return 0, false
	}
	return find(c.entries, id)
}

// get returns an entry; nil if there is none.
func (s *Set) get(k Key) *entry {
	c := s.clusters[k.Cluster]
	if i, ok := c.find(k.ID); ok {
		return c.entries[i]
	}
	return nil
}

// Apply makes a change, and reports whether it is one. What is not what somebody can register is an
// error, and nothing changes: of a key that is there, what it had stays.
func (s *Set) Apply(c Change) (bool, error) {
	name, err := c.Key.Cluster.normal()
	if err != nil {
		return false, err
	}
	var e *entry
	if c.ID != "" && c.Value != nil {
		if e, err = newEntry(c.ID, c.Value, c.Lease); err != nil {
			s.doubt(Key{name, c.ID})
			return false, err
		}
	}
	at := s.clusters[name]
	if at == nil {
		if c.Value == nil {
			return false, nil
		}
		if s.clusters == nil {
			s.clusters, s.dirty, s.leases = map[Cluster]*cluster{}, map[Cluster]bool{}, map[LeaseID]int{}
		}
		at = &cluster{}
		s.clusters[name] = at
	}
	var changed bool
	if c.ID == "" {
		changed, at.claimed = at.claimed != (c.Value != nil), c.Value != nil
	} else {
		changed = s.set(at, c.ID, e)
	}
	if changed {
		s.dirty[name] = true
	}
	if !at.claimed && len(at.entries) == 0 {
		delete(s.clusters, name)
	}
	return changed, nil
}

// doubt notes that what is stored of a key is not what is served, so that who puts that again writes it.
func (s *Set) doubt(k Key) {
	at := s.clusters[k.Cluster]
	if i, has := at.find(k.ID); has {
		e := *at.entries[i]
		e.Endpoint, e.value = e.endpoint(), nil
		at.entries[i] = &e
	}
}

// set has a cluster have an entry, or none of an ID, and reports whether that changes what is served.
func (s *Set) set(at *cluster, id string, e *entry) bool {
	i, has := at.find(id)
	var old *entry
	if has {
		old = at.entries[i]
		s.bytes -= old.bytes
		if s.len--; old.lease != 0 {
			if s.leases[old.lease]--; s.leases[old.lease] == 0 {
				delete(s.leases, old.lease)
			}
		}
	}
	at.move(id, old, e)
	switch {
	case e == nil && !has:
		return false
	case e == nil:
		at.entries = slices.Delete(at.entries, i, i+1)
		return true
	case has:
		at.entries[i] = e
	default:
		at.entries = slices.Insert(at.entries, i, e)
	}
	s.bytes += e.bytes
	if s.len++; e.lease != 0 {
		s.leases[e.lease]++
	}
	return !has || string(old.lb) != string(e.lb) || old.Priority != e.Priority || old.Locality != e.Locality
}

// Keys returns all keys, in any order.
func (s *Set) Keys() (all []Key) {
	for name, c := range s.clusters {
		if c.claimed {
			all = append(all, Key{Cluster: name})
		}
		for _, e := range c.entries {
			all = append(all, Key{name, e.id})
		}
	}
	return all
}

// An Assignment is what is to be served of a cluster from now on.
type Assignment struct {
	Cluster
	Resource *xds.Resource // nil: nothing, and what is said elsewhere counts again
}

// Take returns the assignments that have changed since it was last called, in order. They depend on what is
// registered alone.
func (s *Set) Take() []Assignment {
	all := make([]Assignment, 0, len(s.dirty))
	for name := range s.dirty {
		a := Assignment{Cluster: name}
		if c := s.clusters[name]; c != nil {
			a.Resource = &xds.Resource{Stamp: &xds.Stamp{Name: name.Name, Refs: []xds.Ref{}}, Type: xds.Endpoint, Body: assignment(name.Name, c)}
			a.Resource.Seal("")
		}
		all = append(all, a)
	}
	clear(s.dirty)
	slices.SortFunc(all, func(a, b Assignment) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name)) })
	return all
}
