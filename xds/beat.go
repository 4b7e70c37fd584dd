package xds

import (
	"cmp"
	"slices"
	"time"
)

// A Heartbeat has the resources of a table with the same TTL. A server sends the heartbeat before
// the TTL ends, so that clients keep these resources.
type Heartbeat struct {
	TTL     time.Duration
	Changes *Changes // sends all these resources without their bodies, including resources on demand
}

// expire updates the tree of resources with a TTL.
func (t *Table) expire(changes []edit[*Resource]) {
	var edits []edit[*Resource]
	for _, e := range changes {
		if !e.gone && e.value.TTL > 0 {
			edits = append(edits, e)
		} else if _, has := t.expiring.find(e.hash, e.name); has {
			e.gone = true
			edits = append(edits, e)
		}
	}
	t.expiring = t.expiring.apply(edits)
}

// Heartbeats returns the resources that have a TTL, grouped by TTL, the shortest TTL first. All
// streams share the result, so it must not be changed.
func (t *Table) Heartbeats() []Heartbeat {
	if t.expiring.root == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.beats == nil {
		byTTL := map[time.Duration]*Changes{}
		t.expiring.root.walk(func(_ string, r *Resource) bool {
			c := byTTL[r.TTL]
			if c == nil {
				c = &Changes{}
				byTTL[r.TTL] = c
				t.beats = append(t.beats, Heartbeat{r.TTL, c})
			}
			c.Beats = append(c.Beats, r)
			return true
		})
		for _, c := range byTTL {
			slices.SortFunc(c.Beats, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
		}
		slices.SortFunc(t.beats, func(a, b Heartbeat) int { return cmp.Compare(a.TTL, b.TTL) })
	}
	return t.beats
}
