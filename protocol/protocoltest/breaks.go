package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// noteUnaccepted records which clusters were sent to the client and not accepted, until the client
// has them; Envoy has a cluster when it is warm. A gRPC client may subscribe to a cluster again
// while a full-state response without the cluster is in flight. Then the client treats the cluster
// as removed, which the server cannot know.
func (n *lane) noteUnaccepted(r *xds.Response) {
	if !n.content.whole {
		return
	}
	if n.unaccepted == nil {
		n.unaccepted, n.crossed = map[string]bool{}, map[string]bool{}
	}
	if r.Type.Is(xds.Cluster) {
		held := n.client.held(xds.Cluster)
		for _, x := range r.Upserts {
			n.unaccepted[x.Name] = n.unaccepted[x.Name] || held[x.Name] == nil
		}
		if g, ok := n.client.(*grpc); ok {
			for c, lost := range g.lost {
				n.crossed[c] = n.crossed[c] || lost && n.ledger.account(r.Type).crossed(r.Nonce, c)
			}
		}
	}
	for _, set := range []map[string]bool{n.unaccepted, n.crossed} {
		for c := range set {
			if e, ok := n.client.(*envoy); ok && e.active[c] || !ok && n.client.held(xds.Cluster)[c] != nil {
				delete(set, c)
			}
		}
	}
}

// lostByItself reports whether the client itself is the reason why it lacks a cluster.
func (n *lane) lostByItself(cluster string) bool {
	return n.unaccepted[cluster] && n.accepts(spurned) || n.crossed[cluster] && n.accepts(crossed)
}

// holdsUnknown reports whether the client holds a resource of unknown version from an earlier
// stream that the view has removed, so that no response is due. In SotW no response can remove the
// resource, so the clusters to which it refers are kept for 15 s.
func (n *lane) holdsUnknown(t *xds.Type, r *xds.Resource) bool {
	return n.content.dead[r.Sum] && n.ledger.holdsUnknown(t, r.Name)
}

// stopJudging records why "never breaks" is not judged until everything is settled.
func (n *lane) stopJudging(why Excuse, is bool) {
	if is && n.unjudgedFor == nil {
		n.unjudgedFor = map[Excuse]bool{}
	}
	if is {
		n.unjudgedFor[why] = true
	}
}

// judgeUnbroken checks "never breaks" for the resources that the client holds.
func (n *lane) judgeUnbroken() {
	why := slices.Sorted(maps.Keys(n.unjudgedFor))
	if len(n.expired) > 0 && !n.unjudgedFor[dropped] {
		why = append(why, dropped)
	}
	n.deliveries++
	if len(why) > 0 {
		n.unjudged[why[0]]++
	} else {
		n.judged++
	}
	what := ""
	if !n.allows(func() bool {
		what = n.client.broken(n.lostByItself, n.holdsUnknown)
		return what == "" || slices.ContainsFunc(why, n.accepts)
	}, append(why, spurned, crossed, dead, forgotten)...) {
		n.fail(fmt.Errorf("never breaks: %s", what))
	}
}
