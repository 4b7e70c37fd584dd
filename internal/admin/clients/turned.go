package clients

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

const (
	turnedFor  = 10 * time.Minute // who was turned away is remembered
	maxTurned  = 1000             // reasons, of all addresses
	maxOfHost  = 20               // of one: a client that makes up node ids hides no other
	shownTurns = 100
)

// turned remembers who was turned away lately: for each reason of an address how often, and when.
type turned struct {
	mu  sync.Mutex
	all map[turn]*api.TurnedAway
	of  map[string]int // how many reasons an address has
}

type turn struct{ kind, node, host, text string }

// TurnAway notes that a client was not let in: it never was one, so no stream tells of it. What it
// was refused before for the same reason counts together. The address counts without its port.
func (t *Tracker) TurnAway(a api.TurnedAway) {
	a.At = time.Unix(0, t.now())
	a.Since, a.Times = a.At, 1
	a.Kind, a.Node, a.Text, a.From = clip(a.Kind, maxName), clip(a.Node, maxName), clip(a.Text, maxName), clip(host(a.From), maxName)
	k := turn{a.Kind, a.Node, a.From, a.Text}
	d := &t.turned
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.all[k]; was != nil {
		was.Times, was.At = was.Times+1, a.At
		return
	}
	if d.all == nil {
		d.all, d.of = map[turn]*api.TurnedAway{}, map[string]int{}
	}
	switch {
	case d.of[a.From] >= maxOfHost:
		d.forget(func(k turn) bool { return k.host == a.From })
	case len(d.all) >= maxTurned:
		d.forget(func(turn) bool { return true })
	}
	d.all[k] = &a
	d.of[a.From]++
}

// forget forgets the oldest of some.
func (d *turned) forget(some func(turn) bool) {
	var oldest turn
	var at time.Time
	for k, a := range d.all {
		if some(k) && (at.IsZero() || a.At.Before(at)) {
			oldest, at = k, a.At
		}
	}
	d.drop(oldest)
}

func (d *turned) drop(k turn) {
	delete(d.all, k)
	if d.of[k.host]--; d.of[k.host] <= 0 {
		delete(d.of, k.host)
	}
}

// TurnedAway returns who was turned away within the last ten minutes: of a node id, if one is
// given; the last first, at most 100.
func (t *Tracker) TurnedAway(node string) []api.TurnedAway {
	now := time.Unix(0, t.now())
	d := &t.turned
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []api.TurnedAway{}
	for k, a := range d.all {
		switch {
		case now.Sub(a.At) > turnedFor:
			d.drop(k)
		case node == "" || a.Node == node:
			all = append(all, *a)
		}
	}
	slices.SortFunc(all, func(a, b api.TurnedAway) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.From, b.From), strings.Compare(a.Node, b.Node), strings.Compare(a.Text, b.Text))
	})
	return all[:min(len(all), shownTurns)]
}
