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

// A Value is the stored form of a registration, as JSON.
type Value struct {
	Endpoint
	TTL Duration `json:"ttl,omitzero"` // of its lease; 0: it has none
}

// A Duration is encoded as text, such as "30s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(b []byte) error {
	t, err := time.ParseDuration(string(b))
	*d = Duration(t)
	return err
}

// A Set holds registrations, computes the assignments of clusters, and remembers which of them have
// changed since the last Take. It is not safe for concurrent use; the zero value is empty.
type Set struct {
	clusters map[Cluster]*cluster
	dirty    map[Cluster]bool
	leases   map[LeaseID]int // the number of entries of each lease
	len      int             // the number of entries
	bytes    int             // their total size
}

// A cluster has its entries in the order of their IDs.
type cluster struct {
	claimed bool // the cluster's own key exists
	entries []*entry
	parts   []*part                // the same entries by place, in the order of places
	addrs   map[netip.AddrPort]int // the number of entries with an address
	twice   int                    // entries whose address another entry has, too
}

// countAddr adds more to the number of entries with an address.
func (c *cluster) countAddr(addr netip.AddrPort, more int) {
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

// An entry is a registered endpoint. It is immutable.
type entry struct {
	id       string
	value    []byte // as stored
	lease    LeaseID
	ttl      time.Duration
	addr     netip.AddrPort
	lb       []byte // as served: a field of its locality
	bytes    int    // the result of size
	Endpoint        // without metadata, which unpacked takes many times its stored size
}

// size is the stored size of an endpoint.
func size(id string, value []byte) int { return len(id) + len(value) }

// endpoint returns the endpoint with its metadata.
func (e *entry) endpoint() Endpoint {
	all := e.Endpoint
	var v Value
	if e.value != nil && json.Unmarshal(e.value, &v) == nil {
		all.Metadata = v.Metadata
	}
	return all
}

// newEntry decodes a stored value, or returns the reason why it is invalid.
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

// find returns the index of an ID, or its insertion point.
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

// Apply applies a change, and reports whether it changed an assignment. An invalid value is an error and
// changes nothing: the earlier value of the key stays.
func (s *Set) Apply(c Change) (bool, error) {
	name, err := c.Key.Cluster.normal()
	if err != nil {
		return false, err
	}
	var e *entry
	if c.ID != "" && c.Value != nil {
		e, err = newEntry(c.ID, c.Value, c.Lease)
		if err != nil {
			s.markStale(Key{name, c.ID})
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

// markStale records that the stored value of a key differs from the served one. So a put of the served
// value is written.
func (s *Set) markStale(k Key) {
	at := s.clusters[k.Cluster]
	if i, has := at.find(k.ID); has {
		e := *at.entries[i]
		e.Endpoint, e.value = e.endpoint(), nil
		at.entries[i] = &e
	}
}

// set adds or replaces an entry; nil removes the entry of the ID. It reports whether the assignment
// changes.
func (s *Set) set(at *cluster, id string, e *entry) bool {
	i, has := at.find(id)
	var old *entry
	if has {
		old = at.entries[i]
		s.bytes -= old.bytes
		s.len--
		if old.lease != 0 {
			s.leases[old.lease]--
			if s.leases[old.lease] == 0 {
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
	s.len++
	if e.lease != 0 {
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

// An Assignment is the new assignment of a cluster.
type Assignment struct {
	Cluster
	Resource *xds.Resource // nil: none, so the assignment of the configuration counts again
}

// Take returns the assignments that have changed since its last call, in order. They depend on the
// registrations alone.
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
