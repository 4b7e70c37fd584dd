package revsource

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// This file finds the content of versions that clients of other servers accepted (HEAL-3). Only the revisions
// have it: a server that may write the key [revisions.AcceptedKey], but not commit, cannot add content.

const (
	knownSteps     = 8   // versions of a resource, from the served one back, that are looked at
	knownRevisions = 100 // revisions that one search reads
)

// A wanted is a version that clients of another server accepted.
type wanted struct {
	group string // names of groups, separated by zero bytes
	typ   *xds.Type
	name  string
	sum   string
}

// known has content of earlier revisions. The zero value is empty.
type known struct {
	all     map[wanted]*xds.Resource // nil: the revisions do not have it
	missing []wanted                 // not searched yet
	served  revisions.State          // the state in which the others were searched
}

// get returns the content of a version, if it is known. Otherwise the next search looks for it.
func (k *known) get(w wanted) *xds.Resource {
	r, ok := k.all[w]
	if !ok {
		k.missing = append(k.missing, w)
	}
	return r
}

// search looks for the missing versions in the revisions of a source, which serves one. It reports whether it has found one.
func (k *known) search(ctx context.Context, s *Source) (found bool, err error) {
	at := s.served.Load()
	type place struct {
		wanted
		revisions.Key
	}
	next, steps := map[revisions.Number][]place{}, map[place]int{}
	k.served = s.State()
	if k.all == nil {
		k.all = map[wanted]*xds.Resource{}
	}
	look := func(in *revisions.Snapshot, p place) {
		it := in.Get(p.Key)
		steps[p]++
		switch {
		case it == nil || it.Resource == nil: // a version from before the removal of the name does not count
		case it.Resource.Sum.String() == p.sum:
			now := at.Get(p.Key)
			if k.all[p.wanted] == nil && (!it.Secret || now != nil && now.Secret) { // the review has seen how secrets are served
				k.all[p.wanted], found = s.resource(it), true
			}
		case steps[p] <= knownSteps && it.Since > 1:
			next[it.Since-1] = append(next[it.Since-1], p)
		}
	}
	for _, w := range k.missing {
		k.all[w] = nil
		for group := range strings.SplitSeq(w.group, "\x00") {
			look(at, place{w, revisions.Key{Group: group, Type: w.typ.URL, Name: w.name}})
		}
	}
	k.missing = nil
	for read := 0; len(next) > 0 && read < knownRevisions; read++ {
		n := slices.Max(slices.Collect(maps.Keys(next)))
		old, e := s.repo.At(ctx, n)
		if e != nil {
			err = e
		} else {
			for _, p := range next[n] {
				look(old, p)
			}
		}
		delete(next, n)
	}
	return found, err
}

// again reports whether the next search may find versions that the last one has not found: another state is served.
func (k *known) again(served revisions.State) (again bool) {
	if k.served == served {
		return false
	}
	for w, r := range k.all {
		if r == nil {
			delete(k.all, w)
			again = true
		}
	}
	return again
}

// keep forgets all versions but the given ones.
func (k *known) keep(used map[wanted]bool) {
	maps.DeleteFunc(k.all, func(w wanted, _ *xds.Resource) bool { return !used[w] })
}
