package revsource

import (
	"sync"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// maxReplaced is the maximum number of replaced versions whose revision is known.
const maxReplaced = 10_000

// replaced has the revisions of versions that are not served any more. The zero value is empty.
type replaced struct {
	mu  sync.Mutex // held for memory access only
	all map[replacedKey]revisions.Number
}

type replacedKey struct {
	group string
	sum   xds.Sum
}

// add remembers a version. At the limit it forgets the earlier ones.
func (r *replaced) add(it *revisions.Item) {
	if it == nil || it.Resource == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxReplaced {
		r.all = map[replacedKey]revisions.Number{}
	}
	r.all[replacedKey{it.Group, it.Resource.Sum}] = it.Since
}

// RevisionOf returns the revision that set a version of a resource in a group. The version is served, or was
// served since the start. 0: unknown. Any goroutine may call it.
func (s *Source) RevisionOf(group string, t *xds.Type, name string, sum xds.Sum) revisions.Number {
	if at := s.served.Load(); at != nil {
		it := at.Get(revisions.Key{Group: group, Type: t.URL, Name: name})
		if it != nil && it.Resource != nil && it.Resource.Sum == sum {
			return it.Since
		}
	}
	s.replaced.mu.Lock()
	defer s.replaced.mu.Unlock()
	return s.replaced.all[replacedKey{group, sum}]
}
