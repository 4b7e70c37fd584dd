package admin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/xds"
)

// leaves is a client that takes a response and ends its stream without an answer.
func (w *waitFixture) leaves(node string) {
	c := w.open(node, "edge")
	c.Subscribe(xds.Cluster, "*")
	c.Next(xds.Cluster)
	synctest.Wait()
	c.Close()
	synctest.Wait()
	time.Sleep(2 * time.Second)
}

// A client that leaves again and again after a response fails a wait (SAFE-4). One end is no failure: the
// client may come back with an answer.
func TestWaitFailsForDisconnectLoop(t *testing.T) {
	within(t, "again and again", func(w *waitFixture) {
		result := synced(w.T, w.admin, "timeout=1m")
		_ = result().result // no client is there yet
		result = synced(w.T, w.admin, "timeout=1m&node=one")
		for range 3 {
			w.leaves("one")
		}
		a := result()
		a.verdictIs(w.T, api.WaitFailed, "not synced: client one: it left right after a response of CDS", "chancery explain NODE")
		if len(a.result.Loops) != 1 || a.result.Loops[0].Code != api.DisconnectLoop {
			w.Errorf("%+v", a.result)
		}
		synced(w.T, w.admin, "timeout=5s")().verdictIs(w.T, api.WaitFailed, "client one", "")
		synced(w.T, w.admin, "timeout=5s&type=eds")().verdictIs(w.T, api.WaitTimeout, "not synced after 5s", "")
	})
	within(t, "of an earlier revision", func(w *waitFixture) {
		of := w.admin.Config
		w.admin.Config = func() api.Config {
			c := of()
			newest, _ := w.Newest()
			c.At = &newest.Time
			return c
		}
		for range 3 {
			w.leaves("one")
		}
		w.put(xds.Cluster, "a", "2")
		synced(w.T, w.admin, "timeout=5s")().verdictIs(w.T, api.WaitTimeout, "not yet: one", "")
		result := synced(w.T, w.admin, "timeout=1m")
		c := w.open("one", "edge")
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Next(xds.Cluster))
		result().verdictIs(w.T, api.WaitOK, "", "")
	})
	within(t, "once", func(w *waitFixture) {
		w.leaves("one")
		result := synced(w.T, w.admin, "timeout=1m")
		a := result()
		a.verdictIs(w.T, api.WaitOK, "", "")
		if a.took < 10*time.Second || a.took > 16*time.Second {
			w.Errorf("after %v", a.took)
		}
	})
}

// A server without a connected client has not arrived while one of its clients is expected to return.
func TestArrivedAwaitsClientsThatLeft(t *testing.T) {
	for _, c := range []struct {
		r    api.WaitResult
		want bool
	}{
		{api.WaitResult{Served: true}, true}, {api.WaitResult{Served: true, Pending: []string{"a"}}, false},
		{api.WaitResult{Served: true, Loops: []api.Trouble{{}}}, false},
	} {
		if arrived(&c.r) != c.want {
			t.Errorf("%+v", c.r)
		}
	}
	var sum api.WaitResult
	sum.Clients = counts(sum.Clients)
	err := addWaited(&sum, &api.Replica{}, []byte(`{"kind": "WaitResult", "loops": [{"code": "disconnect-loop", "node": "a", "text": "left"}, {"node": "b"}]}`))
	if err != nil || loopsText(sum.Loops) != "client a: left (and 1 more)" {
		t.Errorf("%v %+v", err, sum)
	}
}
