package protocoltest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A client drops a resource without a heartbeat for its TTL. So the judge tests heartbeats by their effect: a
// client that answers, and gets messages at once, never drops a resource that it should hold.

// A clock is the TTL of one resource at a client.
type clock struct {
	typ *xds.Type
	res *xds.Resource
	fed time.Time
}

func (c clock) ends() time.Time { return c.fed.Add(c.res.TTL) }

// restartTTLs restarts the clocks of the resources of a response.
func (n *lane) restartTTLs(r *xds.Response) {
	if !r.TTL && len(n.clocks)+len(n.expired) == 0 {
		return
	}
	held := n.client.held(r.Type)
	if n.clocks == nil {
		n.clocks, n.expired = map[[2]string]clock{}, map[[2]string]bool{}
	}
	for _, x := range r.Upserts {
		key := [2]string{r.Type.URL, x.Name}
		if is := held[x.Name]; is == nil || !same(is, x) {
			continue // the client refused it, or is not subscribed
		}
		delete(n.clocks, key)
		delete(n.expired, key)
		if r.TTL && x.TTL > 0 {
			n.clocks[key] = clock{r.Type, x, n.now}
		}
	}
	for _, x := range r.Beats {
		key := [2]string{r.Type.URL, x.Name}
		if c, ok := n.clocks[key]; ok && same(c.res, held[x.Name]) && same(c.res, x) {
			n.clocks[key] = clock{r.Type, c.res, n.now}
		}
	}
	for _, name := range r.Removed {
		delete(n.clocks, [2]string{r.Type.URL, name})
		delete(n.expired, [2]string{r.Type.URL, name})
	}
}

// expires returns when the first clock ends; zero: never.
func (n *lane) expires() (next time.Time) {
	for _, c := range n.clocks {
		if at := c.ends(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// expire lets the client drop the resources whose clocks have ended.
func (n *lane) expire() {
	if len(n.clocks) == 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(n.clocks), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, key := range keys {
		c := n.clocks[key]
		if c.ends().After(n.now) {
			continue
		}
		delete(n.clocks, key)
		if !n.client.expire(c.typ, c.res) {
			continue // the client has dropped the resource before, or has another state
		}
		if n.story != nil {
			n.logf("%d drops %s %s, which has expired", n.id, c.typ, key[1])
		}
		lost, why := n.ledger.ttlExcuses(c)
		for _, r := range n.down {
			lost = lost || r.Type.Is(c.typ) && slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), func(x *xds.Resource) bool { return x.Name == key[1] })
		}
		if lost {
			why = append(why, underway)
		}
		if !n.ledger.excuses(why...) {
			n.fail(fmt.Errorf("TTL-3: the client dropped %s %s, which had no heartbeat for %v", c.typ, show(c.res), n.now.Sub(c.fed)))
		}
		n.expired[key] = lost
		n.drops++
	}
}

// ttlExcuses returns the excuses for a resource that had no heartbeat, and whether the server cannot know that the
// client dropped it.
func (l *ledger) ttlExcuses(c clock) (lost bool, why []Excuse) {
	n := c.res.Name
	a := l.account(c.typ)
	if a == nil || !a.covers(n) {
		return false, []Excuse{unsettled} // the type will be requested
	}
	// The session sent a heartbeat in time, or does not know when others arrived.
	lost = a.ttlBegan[n].IsZero() || l.now.Sub(a.ttlBegan[n]) < c.res.TTL
	for _, plea := range []struct {
		Excuse
		holds bool
	}{
		{unsettled, l.now.Sub(a.opened) < c.res.TTL/3},
		{unsettled, len(a.flights) > 0 || a.unsettled || l.now.Sub(a.processedAt) <= c.res.TTL/3}, // or the session was not asked since the answer came
		{unsettled, a.nacked && a.world || a.heldBack(n)},                                         // TTL-5
		{wholeWaits, a.world && (len(a.waitsSince) > 0 || l.hasUndecided(a))},
		{replaced, !a.lastSent[n].is(c.res) || a.lastSent[n].left || l.shown(a, n) == nil && l.mayBeRemoved(a, n)},
	} {
		if plea.holds && !slices.Contains(why, plea.Excuse) {
			why = append(why, plea.Excuse)
		}
	}
	return lost, why
}
