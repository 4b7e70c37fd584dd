package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A syncedAnswer is the answer of /api/v1/wait/synced.
type syncedAnswer struct {
	lines  []api.WaitLine // without the last one
	result *api.WaitResult
	took   time.Duration
}

// synced sends a request, and returns a function that waits for its answer.
func synced(t *testing.T, s *Server, query string) func() syncedAnswer {
	began, out := time.Now(), make(chan *httptest.ResponseRecorder, 1)
	h := s.Handler(loopback)
	go func() { out <- ask(h, "GET /api/v1/wait/synced?"+query, "") }()
	synctest.Wait()
	return func() (a syncedAnswer) {
		t.Helper()
		rec := <-out
		a.took = time.Since(began)
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != linesOfJSON {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		for text := range strings.Lines(rec.Body.String()) {
			var line api.WaitLine
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if a.result != nil {
				t.Errorf("a line after the result: %s", text)
			}
			if line.Result == nil {
				a.lines = append(a.lines, line)
			}
			a.result = line.Result
		}
		return a
	}
}

// verdictIs checks the result of a wait.
func (a syncedAnswer) verdictIs(t *testing.T, class, why, hint string) {
	t.Helper()
	if r := a.result; r == nil || r.Class != class || r.Done != (class == api.WaitOK) || !strings.Contains(r.Why, why) || !strings.Contains(r.Hint, hint) || (r.Why == "") != (why == "") || r.Clients.By == nil || r.Kind != api.KindWaitResult {
		t.Errorf("%+v, want %q %q %q", r, class, why, hint)
	}
}

func TestWaitSynced(t *testing.T) {
	within(t, "until all have accepted, with lines that keep the connection open", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		of := one.Next(xds.Cluster)
		result := synced(w.T, w.admin, "timeout=2m")
		time.Sleep(time.Minute)
		one.ACK(of)
		a := result()
		a.verdictIs(w.T, api.WaitOK, "", "")
		if a.took < time.Minute || a.took > time.Minute+time.Second || len(a.lines) != 5 || a.result.Clients.By[api.Synced] != 1 {
			w.Errorf("after %v: %+v", a.took, a)
		}
	})
	within(t, "without time it looks once", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.ACK(one.Next(xds.Cluster))
		synctest.Wait()
		synced(w.T, w.admin, "timeout=0s")().verdictIs(w.T, api.WaitOK, "", "")
	})
	within(t, "the time is over", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.Next(xds.Cluster)
		a := synced(w.T, w.admin, "timeout=5s")()
		a.verdictIs(w.T, api.WaitTimeout, "not synced after 5s: 1 connected: 0 synced, 1 being sent to; not yet: one", "")
		if a.took < 5*time.Second || a.took > 5100*time.Millisecond {
			w.Errorf("after %v", a.took)
		}
		for query, why := range map[string]string{
			"node=none":                        "no client with node id none is connected",
			"group=mesh":                       "no client of group mesh is connected",
			"revision=99&type=cds":             fmt.Sprintf("revision 99 is not served yet: %d is", w.Snapshot().Seq()),
			"type=lds":                         "none connected",
			"node=one&min_clients=0&local=1":   "1 connected: ",
			"node=one&min_clients=0&local=yes": "",
		} {
			if why == "" {
				if rec := ask(w.admin.Handler(loopback), "GET /api/v1/wait/synced?"+query, ""); rec.Code != http.StatusBadRequest {
					w.Errorf("%s: %d", query, rec.Code)
				}
				continue
			}
			synced(w.T, w.admin, "timeout=1s&"+query)().verdictIs(w.T, api.WaitTimeout, "not synced after 1s: "+why, "")
		}
	})
	within(t, "a client refuses", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		of := one.Next(xds.Cluster)
		result := synced(w.T, w.admin, "timeout=1m")
		time.Sleep(time.Second)
		one.NACK(of, "no such thing")
		a := result()
		a.verdictIs(w.T, api.WaitFailed, "not synced: 1 connected: 0 synced, 1 refusing", "chancery explain NODE")
		if a.took > 2*time.Second || len(a.result.Refusals) != 1 {
			w.Errorf("%+v", a)
		}
	})
	within(t, "the last load was rejected", func(w *waitFixture) {
		w.rejected.Store(&api.Rejected{Since: time.Now().Add(-time.Hour), Errors: []string{"a.yaml:1:1: clutser", "2", "3"}})
		synced(w.T, w.admin, "timeout=1m")().verdictIs(w.T, api.WaitFailed, "not synced: the load of 1h ago was rejected: a.yaml:1:1: clutser (and 2 more)", "--revision waits for the served configuration")
		w.rejected.Store(&api.Rejected{Group: "mesh", Since: time.Now()})
		synced(w.T, w.admin, "timeout=1m")().verdictIs(w.T, api.WaitFailed, "not synced: the load of group mesh 0s ago was rejected: its errors are unknown", "")
	})
}

// A delayed removal has not arrived at any client: the wait lasts until it is served, or until its timeout.
func TestWaitSyncedWaitsForDelayedRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removals atomic.Pointer[api.Removals]
		s := newServer(&fleet{changed: make(chan struct{})})
		s.Config = func() api.Config { return api.Config{Revision: 7, Removals: removals.Load()} }
		removals.Store(&api.Removals{Resources: 5, Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
		a := synced(t, s, "timeout=3s")()
		a.verdictIs(t, api.WaitTimeout, "not synced after 3s: 5 removals wait until 2026-01-02T03:04:05Z", "")
		if a.result.Removals == nil || a.result.Removals.Resources != 5 {
			t.Errorf("%+v", a.result)
		}
		synced(t, s, "timeout=3s&revision=7")().verdictIs(t, api.WaitOK, "", "")
		result := synced(t, s, "timeout=1m")
		time.Sleep(5 * time.Second)
		removals.Store(nil)
		a = result()
		a.verdictIs(t, api.WaitOK, "", "")
		if a.took < 5*time.Second || a.took > 5*time.Second+2*lookAgain {
			t.Errorf("after %v", a.took)
		}
	})
}

// Idle clients are not among the clients that have not accepted yet.
func TestLateNamesNoIdleClient(t *testing.T) {
	w := syncedWait{r: httptest.NewRequest(http.MethodGet, "/", nil)}
	r := api.WaitResult{Pending: []string{"one"}, Clients: api.Counts{Connected: 2, By: map[api.State]int{api.Sent: 1, api.Idle: 1}}}
	if got, want := w.late(&r), "; not yet: one"; !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end with %q", got, want)
	}
	r.Clients = api.Counts{Connected: 3, By: map[api.State]int{api.Sent: 2, api.Idle: 1}}
	if got, want := w.late(&r), "; not yet: one, 1 more"; !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end with %q", got, want)
	}
}

// A wait without a revision waits until the loaded files are a served revision of the store.
func TestWaitSyncedOfStoreWaitsForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(&fleet{changed: make(chan struct{})})
		s.Config = func() api.Config {
			return api.Config{Revision: 7, Store: &api.Store{Revision: "r2", Writer: &api.StoreWriter{Writes: true, Pending: true}}}
		}
		if a := synced(t, s, "timeout=3s")(); a.result.Class != api.WaitTimeout || !strings.Contains(a.result.Why, "the loaded files are not committed to the store yet") {
			t.Errorf("%+v", a.result)
		}
		synced(t, s, "timeout=3s&revision=7")().verdictIs(t, api.WaitOK, "", "")
		s.Replicas = &others{t: t, says: map[string]string{"a": `{"kind": "WaitResult", "uncommitted": true}`, "b": `{"kind": "WaitResult", "done": true, "served": true}`}}
		s.Config = func() api.Config { return api.Config{Revision: 7, Store: &api.Store{Revision: "r2"}} }
		if a := synced(t, s, "timeout=3s")(); a.result.Class != api.WaitTimeout || !a.result.Uncommitted {
			t.Errorf("%+v", a.result)
		}
	})
}

// Removals that this server delays count also behind a store, and without clients.
func TestWaitSyncedOfStoreWaitsForDelayedRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(&fleet{changed: make(chan struct{})})
		s.Config = func() api.Config {
			return api.Config{Revision: 7, Store: &api.Store{Revision: "r2"}, Removals: &api.Removals{Resources: 5}}
		}
		const all = `{"kind": "WaitResult", "done": true, "served": true}`
		s.Replicas = &others{t: t, says: map[string]string{"a": all, "b": all}}
		if a := synced(t, s, "timeout=3s")(); a.result.Class != api.WaitTimeout || a.result.Removals == nil {
			t.Errorf("%+v", a.result)
		}
		synced(t, s, "timeout=3s&stored=r2")().verdictIs(t, api.WaitOK, "", "")
	})
}

// A wait without any client succeeds with a hint; with min_clients it waits for clients.
func TestWaitSyncedForMinimumOfClients(t *testing.T) {
	within(t, "none is connected", func(w *waitFixture) {
		synced(w.T, w.admin, "timeout=1s")().verdictIs(w.T, api.WaitOK, "", "--min-clients 1 waits for a client")
		synced(w.T, w.admin, "timeout=1s&min_clients=1")().verdictIs(w.T, api.WaitTimeout, "not synced after 1s: none connected, fewer than 1 client", "")
		result := synced(w.T, w.admin, "timeout=1m&min_clients=2")
		for _, node := range []string{"one", "two"} {
			time.Sleep(2 * time.Second)
			c := w.open(node, "edge")
			c.Subscribe(xds.Cluster, "*")
			c.ACK(c.Next(xds.Cluster))
		}
		a := result()
		a.verdictIs(w.T, api.WaitOK, "", "")
		if a.result.Clients.Connected != 2 || a.result.Hint != "" || a.took < 4*time.Second || a.took > 6*time.Second {
			w.Errorf("after %v: %+v", a.took, a.result)
		}
	})
}

// A wait ends when its caller leaves or the server ends, and the number of waits is limited.
func TestWaitSyncedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFleet())
		h := s.Handler(loopback)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan struct{})
		for range maxReaders {
			go func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/wait/synced?node=none&timeout=24h", http.NoBody)
				r.Host = "localhost"
				h.ServeHTTP(httptest.NewRecorder(), r)
				ended <- struct{}{}
			}()
		}
		synctest.Wait()
		if rec := ask(h, "GET /api/v1/wait/synced?timeout=1ms", ""); rec.Code != http.StatusTooManyRequests {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		leave()
		for range maxReaders {
			<-ended
		}
		if took := time.Since(began); took > 2*lookAgain {
			t.Errorf("the waits ended %v after their callers", took)
		}
		for _, bad := range []string{"timeout=25h", "timeout=x", "min_clients=-1", "refused=wait", "replicas=1", "stored=x"} {
			if rec := ask(h, "GET /api/v1/wait/synced?"+bad, ""); rec.Code != http.StatusBadRequest {
				t.Errorf("%s: %d", bad, rec.Code)
			}
		}
		synced(t, s, "timeout=1ms")().verdictIs(t, api.WaitOK, "", "")
	})
}

// A storeServer returns a server of a store without clients. config is the present state of the store.
func storeServer(config *atomic.Pointer[api.Store]) *Server {
	s := newServer(&fleet{changed: make(chan struct{})})
	s.Config = func() api.Config { return api.Config{Revision: 7, Store: config.Load()} }
	return s
}

// A revision is not served to a group that is frozen before it. Wait waits for the end of a rollout that
// moves the group, and fails otherwise.
func TestWaitSyncedFailsForFrozenGroup(t *testing.T) {
	const serves = "chancery rollout start r2 --of default serves it step by step; -g GROUP waits for another group"
	const other = "chancery rollout start r2 --of web serves it step by step; "
	at := time.Unix(0, 0)
	hold := api.Hold{Group: "default", Revision: "r1", Author: "ana", Message: "sale", At: at}
	web := api.Hold{Group: "web", Revision: "r1", At: at}
	moving := api.Hold{Group: "default", Revision: "r1", Next: "r2", Rollout: "r2-1"}
	const frozen = "not synced: r2 is not served: group default is frozen at r1 since 1970-01-01T00:00:00Z by ana: sale"
	const aborted = "not synced: r2 is not served: group default is frozen at r1, because rollout r2-1 to r2 was aborted by ben: slow"
	for _, tt := range []struct {
		of               api.Store
		query            string
		class, why, hint string
		back             bool // a rollout took the group default back
	}{
		{of: api.Store{Holds: []api.Hold{hold}}, class: api.WaitFailed, why: frozen, hint: serves},
		{of: api.Store{Holds: []api.Hold{hold}}, class: api.WaitFailed, why: aborted, hint: "correct the cause; -g GROUP", back: true},
		{of: api.Store{Holds: []api.Hold{hold, web}}, class: api.WaitFailed, why: frozen + "; group web is frozen at r1 since 1970-01-01T00:00:00Z", hint: "chancery rollout start r2 --of default serves it step by step; " + other},
		{of: api.Store{Holds: []api.Hold{hold, web}}, class: api.WaitFailed, why: aborted + "; group web is frozen at r1 since", hint: "correct the cause; " + other, back: true},
		{api.Store{Holds: []api.Hold{moving}}, "", api.WaitTimeout, "not synced: rollout r2-1 of group default to r2 is under way", "chancery rollout status", false},
		{api.Store{Holds: []api.Hold{hold}}, "&group=edge", api.WaitTimeout, "no client of group edge is connected", "", false},
		{api.Store{Holds: []api.Hold{{Group: "default", Revision: "r2"}}}, "", api.WaitOK, "", "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var store atomic.Pointer[api.Store]
			tt.of.Revision = "r2"
			store.Store(&tt.of)
			s := storeServer(&store)
			s.TakenBack = func(_ context.Context, group string) (text, advice string) {
				if !tt.back || group != "default" {
					return "", ""
				}
				return "rollout r2-1 to r2 was aborted by ben: slow", "correct the cause"
			}
			a := synced(t, s, "stored=r2&timeout=10s"+tt.query)()
			a.verdictIs(t, tt.class, tt.why, tt.hint)
			if strings.Contains(a.result.Hint, "unfreeze") {
				t.Errorf("the hint ends a freeze: %s", a.result.Hint)
			}
			if want := map[string]time.Duration{api.WaitFailed: settleTime, api.WaitTimeout: 10 * time.Second}[tt.class]; a.took < want || a.took > want+time.Second {
				t.Errorf("after %v", a.took)
			}
			if notes := slices.ContainsFunc(a.lines, func(l api.WaitLine) bool { return l.Note != "" }); notes != (tt.class == api.WaitTimeout && tt.query == "") {
				t.Errorf("%+v", a.lines)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // the rollout begins after a moment, and ends
		var store atomic.Pointer[api.Store]
		s := storeServer(&store)
		set := func(revision string, holds ...api.Hold) { store.Store(&api.Store{Revision: revision, Holds: holds}) }
		set("r1")
		result := synced(t, s, "stored=r2&timeout=1m")
		time.Sleep(time.Second)
		set("r2", hold)
		time.Sleep(time.Second)
		set("r2", moving)
		time.Sleep(20 * time.Second)
		set("r2")
		a := result()
		a.verdictIs(t, api.WaitOK, "", "")
		if a.took < 22*time.Second || a.took > 24*time.Second || a.result.StoreRevision != "r2" {
			t.Errorf("after %v: %+v", a.took, a.result)
		}
		set("r2")
		synced(t, s, "stored=r3&timeout=3s")().verdictIs(t, api.WaitTimeout, "revision r3 is not served yet: r2 is", "")
	})
}

// A rollout that begins during a look sends new responses, so the look before the rollout's end does not count.
func TestWaitSyncedLooksAgainAfterRollout(t *testing.T) {
	within(t, "a rollout of 5 s", func(w *waitFixture) {
		w.open("one", "edge").Subscribe(xds.Cluster, "*")
		synctest.Wait()
		var store atomic.Pointer[api.Store]
		store.Store(&api.Store{Revision: "r2"})
		w.admin.Config = func() api.Config { return api.Config{Revision: w.Snapshot().Seq(), Store: store.Load()} }
		began, looks := time.Now(), 0
		w.admin.Settles = func(context.Context, *server.Stream, *xds.Type) Stand {
			looks++
			switch {
			case looks == 1:
				store.Store(&api.Store{Revision: "r2", Holds: []api.Hold{{Group: "edge", Revision: "r1", Next: "r2", Rollout: "r2-1"}}})
				time.AfterFunc(5*time.Second, func() { store.Store(&api.Store{Revision: "r2"}) })
				return Settled
			case time.Since(began) < 20*time.Second:
				return Pending
			}
			return Settled
		}
		a := synced(w.T, w.admin, "stored=r2&timeout=1m")()
		a.verdictIs(w.T, api.WaitOK, "", "")
		if a.took < 20*time.Second || a.took > 22*time.Second {
			w.Errorf("after %v and %d looks", a.took, looks)
		}
	})
}

// A wait for selected clients is not done while no server has such a client, though all serve the revision.
func TestWaitSyncedForSelectedClientsOfAllServers(t *testing.T) {
	for query, class := range map[string]string{"": api.WaitOK, "&node=none": api.WaitTimeout, "&group=edge": api.WaitTimeout, "&type=cds": api.WaitTimeout} {
		t.Run(query, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store atomic.Pointer[api.Store]
				store.Store(&api.Store{Revision: "r2"})
				s := storeServer(&store)
				answer := `{"kind":"WaitResult","served":true}`
				s.Replicas = &changingOthers{ask: func(int, string, string) map[string]string { return map[string]string{"a": answer, "b": answer} }}
				a := synced(t, s, "stored=r2&timeout=5s"+query)()
				if a.result.Class != class || len(a.result.Replicas) != 3 {
					t.Errorf("%+v, want %s", a.result, class)
				}
				answer = `{"kind":"WaitResult","done":true,"served":true,"clients":{"connected":1,"by":{"SYNCED":1}}}`
				synced(t, s, "stored=r2&timeout=5s"+query)().verdictIs(t, api.WaitOK, "", "")
			})
		})
	}
}

// A wait without a revision ends when all clients have what the server serves to them. A hint names the
// groups that do not get the newest revision.
func TestWaitSyncedNamesFrozenGroup(t *testing.T) {
	hold := api.Hold{Group: "edge", Revision: "r1"}
	for _, tt := range []struct {
		hold api.Hold
		hint string
	}{
		{hold, "group edge is frozen at r1: these clients do not have r2; wait --revision r2 includes them"},
		{api.Hold{Group: "edge", Revision: "r2"}, "no client was there"},
		{api.Hold{Group: "edge", Revision: "r1", Next: "r2", Rollout: "r2-1"}, "rollout r2-1 of group edge to r2 is under way"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var store atomic.Pointer[api.Store]
			store.Store(&api.Store{Revision: "r2", Holds: []api.Hold{tt.hold}})
			synced(t, storeServer(&store), "timeout=10s")().verdictIs(t, api.WaitOK, "", tt.hint)
			if n := storedNumber(tt.hold.Revision); tt.hold.Next == "" { // the caller named a revision that the group has
				synced(t, storeServer(&store), fmt.Sprintf("stored=r%d&timeout=10s", n))().verdictIs(t, api.WaitOK, "", "no client was there")
			}
		})
	}
}

// A wait for the newest configuration fails if the server rejects it, or does not commit its directory.
func TestWaitSyncedFailsForRejectedRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store atomic.Pointer[api.Store]
		store.Store(&api.Store{Revision: "r2", Writer: &api.StoreWriter{Error: "a.yaml: x"}})
		s := storeServer(&store)
		s.About.Replica = "cp-1"
		synced(t, s, "timeout=1m")().verdictIs(t, api.WaitFailed, "not synced: server cp-1 does not commit its directory: a.yaml: x", "chancery status shows details")
		synced(t, s, "timeout=1m&stored=r2")().verdictIs(t, api.WaitOK, "", "")
	})
}

// With a store of several servers, the wait asks all servers in rounds until each serves the revision and
// its clients have accepted it.
func TestWaitSyncedAsksAllServers(t *testing.T) {
	const done, behind = `{"kind":"WaitResult","done":true,"served":true,"clients":{"connected":2,"by":{"SYNCED":2}}}`, `{"kind":"WaitResult","store_revision":"r1","clients":{"connected":1,"by":{"SYNCED":1}}}`
	synctest.Test(t, func(t *testing.T) {
		var store atomic.Pointer[api.Store]
		store.Store(&api.Store{Revision: "r2"})
		s := storeServer(&store)
		s.About.ID = "me"
		o := &changingOthers{ask: func(rounds int, path string, query string) map[string]string {
			if path != "/api/v1/wait" || query != "stored=r2&timeout=600ms" {
				t.Error(path, query)
			}
			return map[string]string{"a": done, "b": map[bool]string{true: done, false: behind}[rounds >= 5]}
		}}
		s.Replicas = o
		a := synced(t, s, "stored=r2&timeout=1m")()
		a.verdictIs(t, api.WaitOK, "", "")
		want := []api.WaitLine{{}, {Progress: &api.WaitProgress{Revision: "r2", Acked: 2, Waiting: 1, Serving: 2, Servers: 3}}, {Progress: &api.WaitProgress{Revision: "r2", Acked: 4, Serving: 3, Servers: 3}}}
		if got, _ := json.Marshal(a.lines); string(got) != must(json.Marshal(want)) || len(a.result.Replicas) != 3 || a.result.Clients.Connected != 4 {
			t.Errorf("%s %+v", got, a.result)
		}
		o.ask = func(int, string, string) map[string]string { return map[string]string{"a": done, "b": behind} }
		synced(t, s, "stored=r2&timeout=2s")().verdictIs(t, api.WaitTimeout, "not synced after 2s: server b serves r1", "")
		o.ask = func(int, string, string) map[string]string { return map[string]string{"a": done} }
		synced(t, s, "stored=r2&timeout=2s")().verdictIs(t, api.WaitTimeout, "server b does not answer: no answer within 1s", "")
		synced(t, s, "stored=r2&timeout=2s&local=1")().verdictIs(t, api.WaitOK, "", "")

		// For the newest configuration, a server that rejects it ends the wait.
		o.ask = func(_ int, path, _ string) map[string]string {
			if path == "/api/v1/status" {
				return map[string]string{"a": `{"kind":"Status","config":{"store":{"revision":"r1"},"rejected":{"errors":["no"]}}}`, "b": `{"kind":"Status"}`}
			}
			return map[string]string{"a": done, "b": done}
		}
		synced(t, s, "timeout=2s")().verdictIs(t, api.WaitFailed, "not synced: server a serves r1, since it rejects the newest revision: no", "chancery status")
		synced(t, s, "timeout=2s&local=1")().verdictIs(t, api.WaitOK, "", "")
	})
}

func must(b []byte, err error) string {
	if err != nil {
		panic(err)
	}
	return string(b)
}

// changingOthers are servers whose answers change from round to round.
type changingOthers struct {
	rounds int
	ask    func(rounds int, path, query string) map[string]string
}

// Order implements Replicas.
func (o *changingOthers) Order(context.Context, string, []byte, int64, func(*api.Replica, []byte)) ([]api.Replica, error) {
	return nil, nil
}

// Ask implements Replicas.
func (o *changingOthers) Ask(ctx context.Context, path string, query url.Values, size int64, read func(*api.Replica, []byte)) ([]api.Replica, error) {
	o.rounds++
	return (&others{says: o.ask(o.rounds, path, query.Encode())}).Ask(ctx, path, query, size, read)
}
