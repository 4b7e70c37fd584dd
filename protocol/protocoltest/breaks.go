package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// spurn records which clusters were sent to the client and not accepted, until the client has them; Envoy has
// a cluster when it is warm. A gRPC client subscribes to a cluster again while a full-state response without
// it is in flight. It takes the cluster for removed then, which the server could not know.
func (n *lane) spurn(r *xds.Response) {
	if !n.content.whole {
		return
	}
	if n.spurned == nil {
		n.spurned, n.crossed = map[string]bool{}, map[string]bool{}
	}
	if r.Type.Is(xds.Cluster) {
		held := n.client.held(xds.Cluster)
		for _, x := range r.Upserts {
			n.spurned[x.Name] = n.spurned[x.Name] || held[x.Name] == nil
		}
		if g, ok := n.client.(*grpc); ok {
			for c, lost := range g.lost {
				n.crossed[c] = n.crossed[c] || lost && n.ledger.account(r.Type).crossed(r.Nonce, c)
			}
		}
	}
	for _, set := range []map[string]bool{n.spurned, n.crossed} {
		for c := range set {
			if e, ok := n.client.(*envoy); ok && e.active[c] || !ok && n.client.held(xds.Cluster)[c] != nil {
				delete(set, c)
			}
		}
	}
}

// spurns reports whether the client itself is the reason why it lacks a cluster.
func (n *lane) spurns(cluster string) bool {
	return n.spurned[cluster] && n.grants(spurned) || n.crossed[cluster] && n.grants(crossed)
}

// forgotten reports whether the client holds a resource of unknown version from an earlier stream that the
// view has removed, so there is nothing to send. In SotW no response can remove it, so its clusters are kept
// for 15 s.
func (n *lane) forgotten(t *xds.Type, r *xds.Resource) bool {
	return n.content.dead[r.Sum] && n.ledger.forgotten(t, r.Name)
}

// shake records why "never breaks" is not judged until everything is settled.
func (n *lane) shake(why Excuse, is bool) {
	if is && n.shaky == nil {
		n.shaky = map[Excuse]bool{}
	}
	if is {
		n.shaky[why] = true
	}
}

// unbroken checks "never breaks" for what the client holds.
func (n *lane) unbroken() {
	why := slices.Sorted(maps.Keys(n.shaky))
	if len(n.expired) > 0 && !n.shaky[dropped] {
		why = append(why, dropped)
	}
	n.deliveries++
	if len(why) > 0 {
		n.unjudged[why[0]]++
	} else {
		n.judged++
	}
	what := ""
	if !n.lets(func() bool {
		what = n.client.broken(n.spurns, n.forgotten)
		return what == "" || slices.ContainsFunc(why, n.grants)
	}, append(why, spurned, crossed, dead, forgotten)...) {
		n.fail(fmt.Errorf("never breaks: %s", what))
	}
}
