package protocoltest

import (
	"cmp"
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
		n.noteClusters(r)
	}
	has := func(c string, _ bool) bool {
		e, ok := n.client.(*envoy)
		return ok && e.active[c] || !ok && n.client.held(xds.Cluster)[c] != nil
	}
	maps.DeleteFunc(n.unaccepted, has)
	maps.DeleteFunc(n.crossed, has)
}

func (n *lane) noteClusters(r *xds.Response) {
	held := n.client.held(xds.Cluster)
	for _, x := range r.Upserts {
		n.unaccepted[x.Name] = n.unaccepted[x.Name] || held[x.Name] == nil
	}
	if g, ok := n.client.(*grpc); ok {
		for c, lost := range g.lost {
			n.crossed[c] = n.crossed[c] || lost && n.ledger.account(r.Type).unasked(r.Nonce, c)
		}
	}
}

// unasked reports whether a full-state response was sent while the client did not subscribe to a name. Such a
// response proves nothing about the name.
func (a *account) unasked(nonce, name string) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool {
		_, said := f.carried[name]
		return f.nonce == nonce && !said
	})
}

// lostByItself reports whether the client itself is the reason why it lacks a cluster.
func (n *lane) lostByItself(cluster string) bool { return n.unaccepted[cluster] || n.crossed[cluster] }

// holdsUnknown reports whether the client holds a resource of unknown version from an earlier stream that the view
// has removed. In SotW no response can remove it, so its clusters are kept for 15 s.
func (n *lane) holdsUnknown(t *xds.Type, r *xds.Resource) bool {
	a := n.ledger.account(t)
	return n.content.dead[r.Sum] && a != nil && n.cfg.Variant == xds.SotW && n.ledger.resumes && a.lastSent[r.Name].absent() && n.ledger.now.Sub(n.ledger.began) >= opensWithin
}

// statesNoClusters reports whether a client with clusters of an earlier stream has stated nothing about them, and has
// accepted none since. To the server it looks like a new client.
func (n *lane) statesNoClusters() bool {
	cds := n.ledger.account(xds.Cluster)
	return n.quiet && (!n.ledger.resumes || n.cfg.Variant == xds.SotW && cds != nil && cds.stated == "" && cds.accepted == 0)
}

// isUnsure reports whether an event has ended the order of types.
func (n *lane) isUnsure() bool { return n.ledger.tardy || n.ledger.blind || n.statesNoClusters() }

// judgeUnbroken checks "never breaks" for the resources that the client holds. After an event that ends the order
// of types, the check pauses until everything is sent and accepted.
func (n *lane) judgeUnbroken(lapsed bool) {
	unsure := n.unjudged || n.isUnsure() || lapsed
	n.ledger.blind, n.ledger.tardy = false, false // the next advance sets them again
	n.unjudged = unsure && !n.ledger.allSettled()
	if !n.content.whole {
		return
	}
	n.deliveries++
	if n.unjudged || len(n.expired) > 0 {
		return
	}
	n.judged++
	if what := cmp.Or(n.client.broken(n.lostByItself, n.holdsUnknown), n.brokenMember()); what != "" {
		n.fail(fmt.Errorf("never breaks: %s", what))
	}
}
