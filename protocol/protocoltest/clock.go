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
		next = earlier(next, c.ends())
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
		n.logf("%d drops %s %s, which has expired", n.id, c.typ, key[1])
		transit := slices.ContainsFunc(n.down, func(r *xds.Response) bool {
			return r.Type.Is(c.typ) && slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), func(x *xds.Resource) bool { return x.Name == key[1] })
		})
		if !transit && n.ledger.keepsAlive(c) {
			n.fail(fmt.Errorf("TTL-3: the client dropped %s %s, which had no heartbeat for %v", c.typ, show(c.res), n.now.Sub(c.fed)))
		}
		n.expired[key] = transit
		n.drops++
	}
}

// keepsAlive reports whether the session must have kept a resource alive: it is in the view, the client was sent
// exactly this state, and has answered everything of the type for a third of the TTL.
func (l *ledger) keepsAlive(c clock) bool {
	n, a := c.res.Name, l.account(c.typ)
	if a == nil || a.unheard || len(a.flights) > 0 || len(a.refused) > 0 || l.now.Sub(latest(a.opened, a.settled)) <= c.res.TTL/3 {
		return false
	}
	waits := a.full && l.mayWait(a) || l.waitsForView(a) // its heartbeat would be the full-state response, which waits
	return !waits && a.lastSent[n].is(c.res) && same(l.shown(a, n), c.res) && l.now.Sub(a.ttlBegan[n]) >= c.res.TTL
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
