package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// A gsite is a gRPC client that dials xds:///greeter.local. The daemon also has resources that the
// client does not need.
type gsite struct {
	*rig
	whole   *testing.T // the clients outlive its steps
	of      implementation
	a, b    upstream
	cluster string   // that its routes lead to
	at      upstream // where that is
	call    caller
	hangUp  func()
}

func newGRPC(t *testing.T, of implementation, args ...string) *gsite {
	t.Helper()
	s := &gsite{whole: t, of: of, a: newGreeter(t, "a"), b: newGreeter(t, "b"), cluster: "greeter"}
	s.at = s.a
	s.rig = newRig(t, newWorld(
		apiListener("greeter.local", "greeter_route"), routes("greeter_route", "1", "greeter"),
		edsCluster("greeter", time.Second), assignment("greeter", s.a.port),
		apiListener("else.local", "else_route"), routes("else_route", "1", "else"),
		edsCluster("else", time.Second), assignment("else", s.b.port),
		apiListener("third.local", "else_route"),
	), mounted, args...)
	return s
}

// step is a part of the test. If it fails, the test ends, because later steps need it.
func (s *gsite) step(name string, f func(t *testing.T)) { s.rig.step(s.whole, name, f) }

// step is a part of a test. If it fails, the test ends, because later steps need it.
func (r *rig) step(whole *testing.T, name string, f func(t *testing.T)) {
	in := func(t *testing.T) { r.t, r.daemon.t = t, t }
	defer in(whole)
	if !whole.Run(name, func(t *testing.T) { in(t); f(t) }) {
		whole.FailNow()
	}
}

func (s *gsite) dial(id string) {
	s.t.Helper()
	s.call, s.hangUp = s.of.dial(s.whole, id, s.Addr().Port)
}

// other returns the upstream that the cluster does not use now.
func (s *gsite) other() upstream {
	if s.at == s.a {
		return s.b
	}
	return s.a
}

// gets waits until the upstream of the cluster answers calls.
func (s *gsite) gets(what string) {
	s.t.Helper()
	eventually(s.t, patience, what, s.call.gets(answer{s.at.name, ""}))
}

// patience is for processes that start on a machine that is busy with others.
const patience = 30 * time.Second

// nextChange moves the cluster and waits for that. After it, no late message of an earlier change
// can follow.
func (s *gsite) nextChange() {
	s.t.Helper()
	s.at = s.other()
	s.commit("greeter moves", func(w world) { w.set(assignment(s.cluster, s.at.port)) })
	s.gets("the next change arrives")
	s.quiet()
}

// acked waits until something of each type is ACKed since p.
func (s *gsite) acked(p tap.Point, types ...string) tap.Records {
	s.t.Helper()
	return s.sees(p, patience, fmt.Sprint("ACKs of ", types), func(rs tap.Records) bool { return has(rs.ACKs(), types...) })
}

// refused waits until a cluster is refused since p. Assignments follow clusters,
// whatever the client thinks of them.
func (s *gsite) refused(p tap.Point) {
	s.t.Helper()
	s.sees(p, patience, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("CDS")) > 0 && has(rs.ACKs(), "EDS") })
}

// leave ends the client.
func (s *gsite) leave() {
	s.t.Helper()
	p := s.Mark("the client leaves")
	s.hangUp()
	s.sees(p, patience, "its stream is closed", func(rs tap.Records) bool {
		return len(rs.Where(func(r tap.Record) bool { return r.Kind == tap.Close })) > 0
	})
}

// goes deletes a resource that the client needs, waits until the client has no subscription of the
// types below, and restores the resource. For a blind client the restored resource has other
// content.
func (s *gsite) goes(typ string, changed proto.Message, below ...string) {
	s.t.Helper()
	m := s.world[key(changed)]
	p := s.commit(typ+" deleted", func(w world) { w.drop(m) })
	eventually(s.t, patience, "calls fail", s.call.fails("Unavailable"))
	s.sees(p, patience, fmt.Sprint("it lets go of ", below), wants(nil, below...))
	s.quiet()
	p = s.commit(typ+" back", func(w world) { w.set(m) })
	s.acked(p, typ)
	if s.of.blind {
		s.quiet()
		eventually(s.t, patience, "calls fail", s.call.fails("Unavailable"))
		s.commit(typ+" changed", func(w world) { w.set(changed) })
	}
	s.gets("calls succeed")
	s.quiet()
}

// switching excuses a race of grpc-go's own: at the moment of a switch of
// routes it may fail a call for a cluster that it has already let go of, though
// the server has not.
func switching(err error) bool {
	return strings.Contains(err.Error(), "unknown cluster selected for RPC")
}

// wants is a condition: the last subscription of each type has these names.
func wants(names []string, types ...string) func(tap.Records) bool {
	return func(rs tap.Records) bool {
		return !slices.ContainsFunc(types, func(typ string) bool {
			asked := rs.Requests(typ)
			return len(asked) == 0 || !slices.Equal(asked[len(asked)-1].Names, names)
		})
	}
}

func routeTo(prefix, cluster string) *route.Route {
	return &route.Route{
		Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: prefix}},
		Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: cluster}}},
	}
}

// announced checks the node in the client's messages.
func (g implementation) announced(t *testing.T, rs tap.Records) {
	t.Helper()
	seen := map[int]bool{} // streams
	for _, r := range rs.Requests() {
		if said, first := r.Node != nil, !seen[r.Stream]; said != (first || g.always) {
			t.Errorf("says who it is in each message: %v, in this:\n%v", g.always, r)
		}
		seen[r.Stream] = true
		if r.Node == nil {
			continue
		}
		agent := r.Node.GetUserAgentName() + " " + r.Node.GetUserAgentVersion()
		if agent = strings.Replace(agent, " osx ", " linux ", 1); agent != g.agent {
			t.Errorf("is %q, want %q", agent, g.agent)
			return
		}
		if !slices.Equal(r.Node.GetClientFeatures(), g.features) {
			t.Errorf("announces %q, want %q", r.Node.GetClientFeatures(), g.features)
		}
	}
}
