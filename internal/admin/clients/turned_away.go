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
	turnedAwayFor   = 10 * time.Minute // time for which an entry is remembered
	maxTurnedAway   = 1000             // maximum number of entries
	maxOfHost       = 20               // maximum number of entries for one address: a client that invents node IDs must not evict the entries of others
	shownTurnedAway = 100
)

// turnedAway remembers peers that were recently not admitted. Each entry counts the attempts with one
// kind, node ID, address and reason.
type turnedAway struct {
	mu  sync.Mutex
	all map[turnedAwayKey]*api.TurnedAway
	of  map[string]int // entries of each address
}

type turnedAwayKey struct{ kind, node, host, text string }

// NoteTurnedAway notes that a peer was not admitted. Such a peer has no stream, so the tracker does
// not see it otherwise. Repetitions for the same reason are counted in one entry. The port of the
// address is ignored.
func (t *Tracker) NoteTurnedAway(a api.TurnedAway) {
	a.At = time.Unix(0, t.now())
	a.Since, a.Times = a.At, 1
	a.Kind, a.Node, a.Text, a.From = clip(a.Kind, maxName), clip(a.Node, maxName), clip(a.Text, maxName), clip(host(a.From), maxName)
	k := turnedAwayKey{a.Kind, a.Node, a.From, a.Text}
	d := &t.turnedAway
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.all[k]; was != nil {
		was.Times, was.At = was.Times+1, a.At
		return
	}
	if d.all == nil {
		d.all, d.of = map[turnedAwayKey]*api.TurnedAway{}, map[string]int{}
	}
	switch {
	case d.of[a.From] >= maxOfHost:
		d.forget(func(k turnedAwayKey) bool { return k.host == a.From })
	case len(d.all) >= maxTurnedAway:
		d.forget(func(turnedAwayKey) bool { return true })
	}
	d.all[k] = &a
	d.of[a.From]++
}

// forget removes the oldest entry that matches.
func (d *turnedAway) forget(match func(turnedAwayKey) bool) {
	var oldest turnedAwayKey
	var at time.Time
	for k, a := range d.all {
		if match(k) && (at.IsZero() || a.At.Before(at)) {
			oldest, at = k, a.At
		}
	}
	d.drop(oldest)
}

func (d *turnedAway) drop(k turnedAwayKey) {
	delete(d.all, k)
	d.of[k.host]--
	if d.of[k.host] <= 0 {
		delete(d.of, k.host)
	}
}

// TurnedAway returns the peers that were not admitted within the last ten minutes, newest first, at most
// 100. If node is not "", the list has only peers that claimed this node ID.
func (t *Tracker) TurnedAway(node string) []api.TurnedAway {
	now := time.Unix(0, t.now())
	d := &t.turnedAway
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []api.TurnedAway{}
	for k, a := range d.all {
		switch {
		case now.Sub(a.At) > turnedAwayFor:
			d.drop(k)
		case node == "" || a.Node == node:
			all = append(all, *a)
		}
	}
	slices.SortFunc(all, func(a, b api.TurnedAway) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.From, b.From), strings.Compare(a.Node, b.Node), strings.Compare(a.Text, b.Text))
	})
	return all[:min(len(all), shownTurnedAway)]
}
