package dns

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/net/dns/dnsmessage"
)

// maxFound limits the addresses of a name, to the default number of endpoints of a cluster
// ([endpoints.Options]).
const maxFound = 10_000

// room returns an error if the answer exceeds the limit of every name that asks the question. Then the
// answer is dropped, so that a name with many targets does not use more memory.
func (b *tracker) room(l *lookup, records []record) error {
	if l.typ == dnsmessage.TypeSRV || len(records) <= len(l.has) {
		return nil
	}
	for f := range l.users {
		if b.count(f, l, len(records)) <= maxFound {
			return nil
		}
	}
	return fmt.Errorf("a name has more than %d addresses", maxFound)
}

// count returns the number of addresses of a name, if the question `of` had n records.
func (b *tracker) count(f *trackedName, of *lookup, n int) (all int) {
	for _, r := range b.records(f) {
		for _, q := range questions(r.target) {
			if l := b.lookups[q]; l == of {
				all += n
			} else {
				all += len(l.has)
			}
		}
	}
	return all
}

// update computes the addresses of a name, and reports whether they changed. An SRV target that is not
// resolved yet keeps its earlier addresses, and those of the targets that it replaces. If there are too
// many addresses, the earlier ones stay.
func (b *tracker) update(f *trackedName) bool {
	f.tooMany = b.count(f, nil, 0) > maxFound
	if f.tooMany {
		return false
	}
	found := b.find(f)
	stays := map[string]bool{}
	for host, by := range f.gone {
		stays[host] = b.awaits(by)
	}
	for _, r := range b.records(f) {
		stays[r.target] = !b.knows(r.target)
	}
	has := make(map[netip.AddrPort]bool, len(found))
	for _, a := range found {
		has[a.AddrPort] = true
	}
	for _, a := range f.found {
		if stays[a.Host] && !has[a.AddrPort] {
			found = append(found, a)
		}
	}
	f.tooMany = len(found) > maxFound
	if f.tooMany {
		return false
	}
	slices.SortFunc(found, compareAddress)
	if slices.Equal(found, f.found) {
		return false
	}
	f.found = found
	return true
}

func compareAddress(a, b Address) int { return a.AddrPort.Compare(b.AddrPort) }

// records are the SRV records of a name, or one for its host.
func (b *tracker) records(f *trackedName) []record {
	if f.name.Port == 0 {
		return b.lookups[question{f.name.Host, dnsmessage.TypeSRV}].has
	}
	return []record{{target: f.name.Host, port: f.name.Port}}
}

// find returns the addresses of a name, in order.
func (b *tracker) find(f *trackedName) []Address {
	records := b.records(f)
	var ranks []int
	for _, r := range records {
		ranks = append(ranks, r.priority)
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	at := map[netip.AddrPort]Address{}
	for _, r := range records {
		for _, q := range questions(r.target) {
			for _, one := range b.lookups[q].has {
				a := Address{netip.AddrPortFrom(one.addr, uint16(r.port)), r.target, 0, 0}
				if f.name.Port == 0 {
					a.Priority, _ = slices.BinarySearch(ranks, r.priority)
					a.Weight = max(r.weight, 1) // RFC 2782: one of weight 0 has "a very small chance"
				}
				if old, twice := at[a.AddrPort]; !twice || cmp.Or(cmp.Compare(a.Priority, old.Priority), cmp.Compare(old.Weight, a.Weight), cmp.Compare(a.Host, old.Host)) < 0 {
					at[a.AddrPort] = a
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(at), compareAddress)
}

// replace records which new targets replace the removed ones. If those are removed before any of them was
// resolved, the next new targets take their place.
func (b *tracker) replace(f *trackedName, records []record) {
	is := map[string]bool{}
	var came []string
	for _, r := range records {
		if !is[r.target] && !f.asks[question{r.target, dnsmessage.TypeA}] {
			came = append(came, r.target)
		}
		is[r.target] = true
	}
	for host, by := range f.gone {
		left := slices.DeleteFunc(slices.Clone(by), func(t string) bool { return !is[t] })
		if len(left) < len(by) && !slices.ContainsFunc(by, b.knows) {
			left = append(left, came...)
		}
		f.gone[host] = left
	}
	for q := range f.asks {
		if q.typ == dnsmessage.TypeA && !is[q.host] {
			f.gone[q.host] = came
		}
	}
	has := map[string]bool{}
	for _, a := range f.found {
		has[a.Host] = true
	}
	maps.DeleteFunc(f.gone, func(host string, by []string) bool { return is[host] || !has[host] || !b.awaits(by) })
}

// knows reports whether a host is resolved: it has addresses, or their absence is confirmed.
func (b *tracker) knows(host string) bool {
	settled := true
	for _, q := range questions(host) {
		l := b.lookups[q]
		if l != nil && len(l.has) > 0 {
			return true
		}
		settled = settled && l != nil && l.settled
	}
	return settled
}

// awaits reports whether one of the hosts is not resolved.
func (b *tracker) awaits(hosts []string) bool {
	return slices.ContainsFunc(hosts, func(host string) bool { return !b.knows(host) })
}
