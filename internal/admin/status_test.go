package admin

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
)

// The server decides whether a status is healthy: the exit code of the command.
func TestStatusHealthy(t *testing.T) {
	clients := func(s api.State) api.Status {
		return api.Status{Clients: api.Counts{Connected: 1, By: map[api.State]int{s: 1}}}
	}
	of := func(c api.Config) api.Status { return api.Status{Config: c} }
	store := func(s api.Store) api.Status { return of(api.Config{Store: &s}) }
	upstream := func(u api.Upstream) api.Status { return of(api.Config{Upstream: &u}) }
	for _, st := range []api.Status{
		{}, clients(api.Synced), clients(api.Sent), clients(api.Idle), of(api.Config{Doubts: 1}), {Troubles: []api.Trouble{{Code: "flaps"}}}, store(api.Store{Writer: &api.StoreWriter{}}),
		upstream(api.Upstream{Connected: true}), upstream(api.Upstream{Idle: true}), {Replicas: []api.Replica{{Asked: true}, {}}},
	} {
		if !healthy(&st) {
			t.Errorf("not healthy: %+v", st)
		}
	}
	for _, st := range []api.Status{
		{Troubles: []api.Trouble{{Code: "flaps"}, {Code: api.DisconnectLoop}}}, {Troubles: []api.Trouble{{Code: api.StaleEndpoints}}}, {Troubles: []api.Trouble{{Code: api.NotStored}}}, {Troubles: []api.Trouble{{Code: api.RejectedTLS}}},
		clients(api.Nacked), clients(api.Stale), of(api.Config{Dangling: 1}), of(api.Config{Rejected: &api.Rejected{}}), {RejectedGroups: []api.Rejected{{}}},
		store(api.Store{Error: "e"}), store(api.Store{Writer: &api.StoreWriter{Error: "e"}}), store(api.Store{RolledBack: []api.RolledBack{{}}}),
		upstream(api.Upstream{}), upstream(api.Upstream{Connected: true, Refused: 1}),
		{Unsure: "e"}, {Replicas: []api.Replica{{}, {Error: "e"}}}, {Replicas: []api.Replica{{Rejected: &api.Rejected{}}}}, {Replicas: []api.Replica{{Trouble: "e"}}}, {Replicas: []api.Replica{{Unwritten: "e"}}},
	} {
		if healthy(&st) {
			t.Errorf("healthy: %+v", st)
		}
	}
}

// A diverseFleet is a fleet whose clients all have different agents.
type diverseFleet struct{ *fleet }

func (diverseFleet) Fleet(int) (agents []api.AgentCount, responses, names []api.TypeLoad) {
	return slices.Repeat([]api.AgentCount{{Clients: api.Counts{Connected: 1}}}, 150), nil, nil
}

// The number of connected clients includes those whose agent is not in the answer.
func TestFleetCountsAllClients(t *testing.T) {
	s := newServer(newFleet())
	s.About.ID, s.Tracker = "me", diverseFleet{newFleet()}
	if f, code := asksServer[api.Fleet](t, s, "/api/v1/fleet"); code != http.StatusOK || f.Connected != 150 || len(f.Agents) != 100 {
		t.Errorf("%d: %d clients, %d agents", code, f.Connected, len(f.Agents))
	}
}

// A healthyFleet is a fleet whose clients are all synced.
type healthyFleet struct{ *fleet }

func (healthyFleet) SummaryOf(clients.Filter) (api.Counts, []api.Refusal, []api.Trouble) {
	return api.Counts{Connected: 1, By: map[api.State]int{api.Synced: 1}}, nil, nil
}

// A rejected load of a group makes the status of the server unhealthy.
func TestStatusOfRejectedGroupIsNotHealthy(t *testing.T) {
	for _, rejected := range []*api.Rejected{nil, {Group: "mesh"}} {
		s := newServer(newFleet())
		s.About.ID, s.Tracker = "me", healthyFleet{newFleet()}
		s.Groups = func() []api.Group { return []api.Group{{Name: "mesh", Rejected: rejected}} }
		st, code := asksServer[api.Status](t, s, "/api/v1/status")
		if code != http.StatusOK || st.Healthy == nil || *st.Healthy != (rejected == nil) {
			t.Errorf("rejected %v: %+v", rejected, st)
		}
	}
}

// A server of the store that does not answer makes the status of all servers unhealthy.
func TestStatusOfAllHealthy(t *testing.T) {
	const well = `{"kind": "Status"}`
	for _, b := range []string{well, ""} {
		o := &others{t: t, says: map[string]string{"a": well, "b": b}}
		s := newServer(newFleet())
		s.About.ID, s.Replicas, s.Tracker = "me", o, healthyFleet{newFleet()}
		st, code := asksServer[api.Status](t, s, "/api/v1/status?replicas=1")
		if code != http.StatusOK || st.Healthy == nil || *st.Healthy != (b == well) {
			t.Errorf("%q: %+v", b, st)
		}
	}
}

// A blamer finds each refused resource at a place of the served files.
type blamer struct{ oracle }

func (blamer) Blame(_ context.Context, all []api.Refusal) []api.Refusal {
	for i := range all {
		all[i].Resources = []api.Resource{{Type: all[i].Type, Name: "b", Place: "now.yaml:1:1"}}
	}
	return all
}

// The refusal of a client that left is about earlier content: it has no place in the present files.
func TestRefusalOfDepartedClientHasNoPresentPlace(t *testing.T) {
	s := &Server{Explainer: blamer{}}
	nacked := func() []api.TypeStatus {
		return []api.TypeStatus{{Type: "CDS", Nacked: &api.NackedStatus{Error: "bad", Resources: []api.Resource{{Type: "CDS", Name: "b"}}}}}
	}
	all := []api.Client{{Node: "edge-2", Types: nacked()}, {Node: "edge-2", Left: &api.Left{}, Types: nacked()}}
	s.blameIn(context.Background(), "edge-2", all)
	for i, want := range []string{"now.yaml:1:1", ""} {
		if got := all[i].Types[0].Nacked.Resources[0].Place; got != want {
			t.Errorf("client %d: place %q, want %q", i, got, want)
		}
	}
}
