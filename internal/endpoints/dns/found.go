package dns

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/net/dns/dnsmessage"
)

// maxFound is how many addresses a name may have: as many as a cluster may have endpoints ([endpoints.Options]), if nobody says otherwise.
const maxFound = 10_000

// room returns an error if an answer is of more addresses than any name has room for that asks for it. It is forgotten then, so that
// a name of many targets has no more of them in memory.
func (b *book) room(l *lookup, records []record) error {
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

// count returns how many addresses the records of a name have, if a question has so many.
func (b *book) count(f *followed, of *lookup, n int) (all int) {
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

// tells reports whether a name has other addresses than were told, and notes those. A target of which nothing is known keeps
// what it had, and what it replaces. If there are too many, what was told stays.
func (b *book) tells(f *followed) bool {
	if f.wide = b.count(f, nil, 0) > maxFound; f.wide {
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
	if f.wide = len(found) > maxFound; f.wide {
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

// records are those of SRV of a name, or one of its host.
func (b *book) records(f *followed) []record {
	if f.name.Port == 0 {
		return b.lookups[question{f.name.Host, dnsmessage.TypeSRV}].has
	}
	return []record{{target: f.name.Host, port: f.name.Port}}
}

// find returns the addresses that a name has, in order.
func (b *book) find(f *followed) []Address {
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

// replace notes which targets are in the place of those that go. If what came went again before something was known of any of it,
// what comes now is in its place.
func (b *book) replace(f *followed, records []record) {
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

// knows reports whether something is known of a host.
func (b *book) knows(host string) bool {
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

// awaits reports whether nothing is known of one of the hosts.
func (b *book) awaits(hosts []string) bool {
	return slices.ContainsFunc(hosts, func(host string) bool { return !b.knows(host) })
}
