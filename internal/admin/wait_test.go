package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A waitFixture is a server with in-memory clients and the admin API.
type waitFixture struct {
	*testing.T
	*store.Store
	open  func(node, cluster string) *xdstest.Client
	admin *Server

	rejected atomic.Pointer[api.Rejected]
	mesh     atomic.Pointer[api.Rejected] // of the group
}

func within(t *testing.T, name string, f func(w *waitFixture)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := store.New()
			tracker := clients.New(clients.Options{Groups: func(n *xds.Node) []string { return []string{n.Cluster} }})
			srv := server.New(st, server.WithObserver(tracker), server.WithLogger(slog.New(slog.DiscardHandler)))
			w := &waitFixture{T: t, Store: st, admin: newServer(nil)}
			w.admin.Tracker = tracker
			w.admin.Config = func() api.Config {
				return api.Config{Revision: st.Snapshot().Seq(), Rejected: w.rejected.Load()}
			}
			w.admin.Groups = func() []api.Group {
				return []api.Group{{Name: "edge"}, {Name: "mesh", Rejected: w.mesh.Load()}}
			}
			w.open = func(node, cluster string) *xdstest.Client {
				return xdstest.Delta(t, xdstest.Serve(t, srv), xdstest.WithNode(xds.Node{ID: node, Cluster: cluster}))
			}
			w.put(xds.Cluster, "a", "1")
			f(w)
		})
	})
}

func (w *waitFixture) put(t *xds.Type, name, content string) {
	w.Helper()
	if _, err := w.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(t, name, []byte(content))); return nil }); err != nil {
		w.Fatal(err)
	}
}

// wait sends a request with a query, and returns the answer and the duration.
func (w *waitFixture) wait(query string) (result func() api.WaitResult, came func() time.Duration) {
	began, out, took := time.Now(), make(chan *httptest.ResponseRecorder, 1), time.Duration(0)
	h := w.admin.Handler(loopback)
	go func() { out <- ask(h, "GET /api/v1/wait?"+query, "") }()
	synctest.Wait()
	return func() (r api.WaitResult) {
		w.Helper()
		rec := <-out
		took = time.Since(began)
		if err := json.Unmarshal(rec.Body.Bytes(), &r); err != nil || rec.Code != 200 {
			w.Fatalf("%d %s", rec.Code, rec.Body)
		}
		return r
	}, func() time.Duration { return took }
}

func TestWait(t *testing.T) {
	within(t, "until all have accepted", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		one.Subscribe(xds.Cluster, "*")
		two.Subscribe(xds.Cluster, "*")
		of1, of2 := one.Next(xds.Cluster), two.Next(xds.Cluster)
		result, took := w.wait("for=synced&timeout=1m")
		time.Sleep(3 * time.Second)
		one.ACK(of1)
		time.Sleep(4 * time.Second)
		two.ACK(of2)
		if r := result(); !r.Done || r.Clients.Connected != 2 || r.Clients.By[api.Synced] != 2 || len(r.Pending)+len(r.Refusals) > 0 {
			w.Errorf("%+v", r)
		}
		if took() < 7*time.Second || took() > 7*time.Second+100*time.Millisecond {
			w.Errorf("after %v, though the last was at 7 s", took())
		}
	})
	within(t, "what was committed a moment ago counts", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.ACK(one.Next(xds.Cluster))
		synctest.Wait()
		w.put(xds.Cluster, "a", "2") // the tracker does not know this commit yet
		result, took := w.wait("timeout=1m")
		r := one.Next(xds.Cluster)
		time.Sleep(time.Second)
		one.ACK(r)
		if r := result(); !r.Done || took() < time.Second {
			w.Errorf("%+v after %v", r, took())
		}
	})
	within(t, "the time is over", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		for _, c := range []*xdstest.Client{one, two} {
			c.Subscribe(xds.Cluster, "*")
		}
		two.ACK(two.Next(xds.Cluster))
		one.Next(xds.Cluster)
		result, took := w.wait("timeout=5s")
		if r := result(); r.Done || !slices.Equal(r.Pending, []string{"one"}) || len(r.Refusals) > 0 {
			w.Errorf("%+v", r)
		}
		if took() < 5*time.Second || took() > 5100*time.Millisecond {
			w.Errorf("after %v", took())
		}
		for query, done := range map[string]bool{"node=two": true, "node=t*": true, "group=mesh": true, "group=edge": false, "node=three": false, "type=eds&node=two": false, "type=cds&node=two": true} {
			result, _ := w.wait("timeout=1s&" + query)
			if r := result(); r.Done != done {
				w.Errorf("%s: %+v", query, r)
			}
		}
	})
	within(t, "without time it looks once", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		for _, c := range []*xdstest.Client{one, two} {
			c.Subscribe(xds.Cluster, "*")
		}
		one.ACK(one.Next(xds.Cluster))
		of2 := two.Next(xds.Cluster)
		synctest.Wait()
		for query, done := range map[string]bool{"": false, "&node=one": true, "&node=two": false} {
			result, took := w.wait("timeout=0s" + query)
			if r := result(); r.Done != done || !done && !slices.Equal(r.Pending, []string{"two"}) || took() > lookTime {
				w.Errorf("%q: %+v after %v", query, r, took())
			}
		}
		two.ACK(of2)
		synctest.Wait() // the server has read the ACK
		result, _ := w.wait("timeout=0s")
		if r := result(); !r.Done {
			w.Errorf("%+v, though all clients are synced", r)
		}
	})
	within(t, "a hanging stream is pending after a short time", func(w *waitFixture) {
		w.open("one", "edge").Subscribe(xds.Cluster, "*")
		synctest.Wait()
		w.admin.Settles = func(ctx context.Context, _ *server.Stream, _ *xds.Type) Stand { <-ctx.Done(); return Pending }
		result, took := w.wait("timeout=0s")
		if r := result(); r.Done || !slices.Equal(r.Pending, []string{"one"}) || took() != lookTime {
			w.Errorf("%+v after %v", r, took())
		}
	})
	within(t, "the last look does not list a synced client", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		for _, c := range []*xdstest.Client{one, two} {
			c.Subscribe(xds.Cluster, "*")
		}
		one.Next(xds.Cluster)
		of2 := two.Next(xds.Cluster)
		result, _ := w.wait("timeout=5s")
		time.Sleep(5*time.Second - lookEvery/4)
		two.ACK(of2)
		if r := result(); r.Done || !slices.Equal(r.Pending, []string{"one"}) {
			w.Errorf("%+v", r)
		}
	})
	within(t, "a client without a node id has the name of its stream", func(w *waitFixture) {
		one := w.open("", "edge")
		one.Subscribe(xds.Cluster, "*")
		of := one.Next(xds.Cluster)
		synctest.Wait()
		name := w.admin.Tracker.Clients(clients.Filter{All: true}).Items[0].Path
		result, _ := w.wait("timeout=0s")
		if r := result(); name == "" || !slices.Equal(r.Pending, []string{name}) {
			w.Errorf("%+v, want %q pending", r, name)
		}
		synced(w.T, w.admin, "timeout=0s")().verdictIs(w.T, api.WaitTimeout, "not yet: "+name, "")
		one.NACK(of, "no")
		synctest.Wait()
		result, _ = w.wait("timeout=0s")
		if r := result(); len(r.Refusals) != 1 || !slices.Equal(r.Refusals[0].Nodes, []string{name}) {
			w.Errorf("%+v, want %q in the refusal", r, name)
		}
	})
	within(t, "a client refuses", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		for _, c := range []*xdstest.Client{one, two} {
			c.Subscribe(xds.Cluster, "*")
		}
		of1, of2 := one.Next(xds.Cluster), two.Next(xds.Cluster)
		fails, took := w.wait("timeout=1m")
		waits, later := w.wait("timeout=10s&refused=wait")
		one.NACK(of1, "no such thing")
		if r := fails(); r.Done || len(r.Refusals) != 1 || r.Refusals[0].Clients != 1 || r.Refusals[0].Type != "CDS" || !slices.Equal(r.Refusals[0].Nodes, []string{"one"}) || !slices.Equal(r.Pending, []string{"two"}) {
			w.Errorf("%+v", r)
		}
		if took() > 100*time.Millisecond {
			w.Errorf("after %v", took())
		}
		// fixed: the earlier refusal does not count
		two.ACK(of2)
		w.put(xds.Cluster, "a", "2")
		again, _ := w.wait("timeout=1m")
		for _, c := range []*xdstest.Client{one, two} {
			c.ACK(c.Next(xds.Cluster))
		}
		if r := again(); !r.Done {
			w.Errorf("%+v", r)
		}
		if r := waits(); !r.Done || later() > time.Second {
			w.Errorf("%+v after %v", r, later())
		}
	})
	within(t, "what one client has refused before is no answer while it is sent something else", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		for _, c := range []*xdstest.Client{one, two} {
			c.Subscribe(xds.Cluster, "*")
		}
		one.NACK(one.Next(xds.Cluster), "old")
		two.ACK(two.Next(xds.Cluster))
		w.put(xds.Cluster, "a", "2")
		one.Next(xds.Cluster) // without an answer
		of2 := two.Next(xds.Cluster)
		result, _ := w.wait("timeout=1m")
		two.NACK(of2, "new")
		if r := result(); r.Done || len(r.Refusals) != 1 || r.Refusals[0].Error != "new" || !slices.Equal(r.Refusals[0].Nodes, []string{"two"}) || !slices.Equal(r.Pending, []string{"one"}) {
			w.Errorf("%+v", r)
		}
	})
	within(t, "what it refused is to be told again, and waits for another type", func(w *waitFixture) {
		both := func(content string) {
			l := xds.NewResource(xds.Listener, "l", []byte(content))
			l.Refs = []xds.Ref{{Type: xds.Cluster, Name: "a"}}
			if _, err := w.Update(func(tx *store.Tx) error {
				tx.Set(xds.NewResource(xds.Cluster, "a", []byte(content)), l)
				return nil
			}); err != nil {
				w.Fatal(err)
			}
		}
		both("2")
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.ACK(one.Next(xds.Cluster))
		one.Subscribe(xds.Listener, "*")
		one.NACK(one.Next(xds.Listener), "no")
		synctest.Wait()
		both("3")
		of := one.Next(xds.Cluster) // without an answer, so that the listener waits
		result, _ := w.wait("timeout=1s&type=lds")
		if r := result(); r.Done || len(r.Refusals) > 0 || !slices.Equal(r.Pending, []string{"one"}) {
			w.Errorf("%+v", r)
		}
		one.ACK(of)
		one.ACK(one.Next(xds.Listener))
	})
	within(t, "for one type only", func(w *waitFixture) {
		w.put(xds.Secret, "s", "1")
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.NACK(one.Next(xds.Cluster), "no")
		one.Subscribe(xds.Secret, "s")
		one.ACK(one.Next(xds.Secret))
		for query, done := range map[string]bool{"type=sds": true, "type=cds": false, "": false} {
			result, _ := w.wait("timeout=1s&" + query)
			if r := result(); r.Done != done || (len(r.Refusals) == 0) != done {
				w.Errorf("%s: %+v", query, r)
			}
		}
	})
	within(t, "of whom none is there, who is asked for may be about to connect", func(w *waitFixture) {
		for _, query := range []string{"node=one", "group=edge", "type=CDS"} {
			result, took := w.wait(query + "&timeout=10s")
			if r := result(); r.Done || took() < 10*time.Second {
				w.Errorf("%s: %+v after %v", query, r, took())
			}
		}
	})
	within(t, "a client comes and leaves", func(w *waitFixture) {
		result, _ := w.wait("timeout=1m&node=late")
		time.Sleep(time.Second)
		late := w.open("late", "edge")
		late.Subscribe(xds.Cluster, "*")
		late.ACK(late.Next(xds.Cluster))
		if r := result(); !r.Done {
			w.Errorf("%+v", r)
		}
		slow := w.open("slow", "edge")
		slow.Subscribe(xds.Cluster, "*")
		slow.Next(xds.Cluster)
		result, took := w.wait("timeout=1m")
		time.Sleep(time.Second)
		slow.Close() // it may come back soon, and refuse the response or leave again
		if r := result(); !r.Done || took() < 15*time.Second || took() > 17*time.Second {
			w.Errorf("%+v after %v", r, took())
		}
	})
	within(t, "the last load was rejected: the change has arrived nowhere", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.ACK(one.Next(xds.Cluster))
		no := &api.Rejected{Since: time.Now(), Errors: []string{"a.yaml:1:1: clutser"}}
		w.rejected.Store(no)
		for query, done := range map[string]bool{"": false, "&group=edge": false, fmt.Sprintf("&revision=%d", w.Snapshot().Seq()): true} {
			result, took := w.wait("timeout=1m" + query)
			if r := result(); r.Done != done || (r.Rejected != nil) == done || r.Clients.Connected != 1 || took() > time.Second {
				w.Errorf("%q: %+v after %v", query, r, took())
			}
		}
		patient, took := w.wait("timeout=1m&refused=wait")
		time.Sleep(3 * time.Second)
		w.rejected.Store(nil) // fixed
		if r := patient(); !r.Done || r.Rejected != nil || took() < 3*time.Second {
			w.Errorf("%+v after %v", r, took())
		}
		w.put(xds.Cluster, "a", "2")
		one.Next(xds.Cluster) // without an answer
		meanwhile, _ := w.wait("timeout=1m")
		time.Sleep(3 * time.Second)
		w.rejected.Store(no)
		if r := meanwhile(); r.Done || r.Rejected == nil {
			w.Errorf("%+v", r)
		}
	})
	within(t, "the last load of a group was rejected: that has not arrived at who has it", func(w *waitFixture) {
		one, two := w.open("one", "edge"), w.open("two", "mesh")
		for _, c := range []*xdstest.Client{one, two} {
			c.Subscribe(xds.Cluster, "*")
			c.ACK(c.Next(xds.Cluster))
		}
		w.mesh.Store(&api.Rejected{Group: "mesh", Since: time.Now(), Errors: []string{"mesh/a.yaml:1:1: clutser"}})
		for query, done := range map[string]bool{"": false, "&group=mesh": false, "&node=two": false, "&group=edge": true, "&node=one": true, fmt.Sprintf("&revision=%d", w.Snapshot().Seq()): true} {
			result, took := w.wait("timeout=1m" + query)
			if r := result(); r.Done != done || (r.Rejected != nil) == done || took() > time.Second {
				w.Errorf("%q: %+v after %v", query, r, took())
			}
		}
		two.Close()
		synctest.Wait()
		for query, done := range map[string]bool{"": true, "&group=mesh": false} {
			result, _ := w.wait("timeout=1m" + query)
			if r := result(); r.Done != done || !done && r.Rejected.Group != "mesh" {
				w.Errorf("%q: %+v", query, r)
			}
		}
	})
	within(t, "a group that there is not, and a revision that does not come", func(w *waitFixture) {
		if rec := ask(w.admin.Handler(loopback), "GET /api/v1/wait?group=zz", ""); rec.Code != 404 {
			w.Errorf("%d %s", rec.Code, rec.Body)
		}
		result, _ := w.wait("timeout=1s&revision=99")
		if r := result(); r.Done || r.Revision != w.Snapshot().Seq() {
			w.Errorf("%+v", r)
		}
	})
	within(t, "a revision that comes later", func(w *waitFixture) {
		one := w.open("one", "edge")
		one.Subscribe(xds.Cluster, "*")
		one.ACK(one.Next(xds.Cluster))
		result, took := w.wait(fmt.Sprintf("timeout=1m&revision=%d", w.Snapshot().Seq()+1))
		time.Sleep(2 * time.Second)
		w.put(xds.Cluster, "b", "1")
		one.ACK(one.Next(xds.Cluster))
		if r := result(); !r.Done || took() < 2*time.Second || took() > 3100*time.Millisecond {
			w.Errorf("%+v after %v", r, took())
		}
	})
}

// The result has the served revision of the store, so that a caller knows what the clients have accepted.
func TestWaitNamesStoreRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store atomic.Pointer[api.Store]
		s := storeServer(&store)
		wait := func(query string) (r api.WaitResult) {
			t.Helper()
			rec := ask(s.Handler(loopback), "GET /api/v1/wait?timeout=0s"+query, "")
			if err := json.Unmarshal(rec.Body.Bytes(), &r); err != nil || rec.Code != 200 {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
			return r
		}
		if r := wait(""); !r.Done || r.StoreRevision != "" || r.Revision != 7 {
			t.Errorf("without a store: %+v", r)
		}
		store.Store(&api.Store{Revision: "r2"})
		for query, done := range map[string]bool{"": true, "&stored=r1": true, "&stored=r2": true, "&stored=r3": false} {
			if r := wait(query); r.Done != done || r.Served != done || r.StoreRevision != "r2" || r.Revision != 7 {
				t.Errorf("%q: %+v", query, r)
			}
		}
	})
}
