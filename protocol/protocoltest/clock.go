package protocoltest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A client drops what it has heard nothing of for its TTL. So heartbeats are judged
// by effect: no client that answers, to which messages take no time, ever drops
// anything that it should have.

// A clock runs at a client, for one resource.
type clock struct {
	typ *xds.Type
	res *xds.Resource
	fed time.Time
}

func (c clock) ends() time.Time { return c.fed.Add(c.res.TTL) }

// wind lets the clocks of what a response tells of begin anew.
func (n *lane) wind(r *xds.Response) {
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
			continue // it has refused it, or does not want it
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

// expires is when the first clock ends; zero: never.
func (n *lane) expires() (next time.Time) {
	for _, c := range n.clocks {
		if at := c.ends(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// expire lets the client drop what its clocks say.
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
		if !same(n.client.held(c.typ)[key[1]], c.res) {
			continue // it has let go of it, or has another
		}
		n.client.expire(c.typ, key[1])
		if n.story != nil {
			n.logf("%d drops %s %s, which has expired", n.id, c.typ, key[1])
		}
		lost, why := n.ledger.expired(c)
		for _, r := range n.down {
			lost = lost || r.Type.Is(c.typ) && slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), func(x *xds.Resource) bool { return x.Name == key[1] })
		}
		if why == "" && !lost {
			n.fail(fmt.Errorf("TTL-3: the client dropped %s %s, of which it heard nothing for %v", c.typ, show(c.res), n.now.Sub(c.fed)))
		}
		n.expired[key] = lost
		n.drops++
	}
}

// expired says why a client may have heard nothing of a resource that it had, or "";
// and whether the server cannot know that it has dropped it.
func (l *ledger) expired(c clock) (lost bool, why string) {
	n := c.res.Name
	a := l.account(c.typ)
	switch {
	case a == nil:
		return false, "the type is not open"
	case !a.covers(n):
		return false, "it is not asked for"
	case a.fed[n].IsZero() || l.now.Sub(a.fed[n]) < c.res.TTL:
		// The server has spoken of it in time, or does not know when others did.
		lost = true
	}
	switch {
	case l.now.Sub(a.opened) < c.res.TTL/3:
		return lost, "the stream is new"
	case len(a.flights) > 0 || a.stirred || l.now.Sub(a.calm) <= c.res.TTL/3:
		return lost, "something is, or was just, unanswered" // or the session was not asked since it was answered
	case a.nacked && a.world || a.heldBack(n):
		return lost, "TTL-5: the client has refused it"
	case a.world && (len(a.tied) > 0 || l.searching(a)):
		return lost, "TTL-4: its heartbeat would be the whole world, which waits"
	case !a.told[n].is(c.res):
		return lost, "it was told another"
	case a.told[n].left, l.shown(a, n) == nil && l.mayLeave(a, n):
		return lost, "it is leaving"
	}
	return lost, ""
}
