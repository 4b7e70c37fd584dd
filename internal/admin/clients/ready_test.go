package clients

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A client is ready once it has accepted a response of each type, and stays ready while it is connected,
// also while it refuses a newer one. A strict answer counts refusals and unanswered responses.
func TestReady(t *testing.T) {
	for _, v := range variants {
		within(t, v.String(), func(w *testServer) {
			want := func(ok, strict bool, why string) {
				t.Helper()
				synctest.Wait()
				got, text := w.Ready("edge-1", false)
				always, strictText := w.Ready("edge-1", true)
				if got != ok || always != strict || !strings.Contains(text, why) && !strings.Contains(strictText, why) {
					t.Errorf("%t %q, strict %t %q; want %t, %t, %q", got, text, always, strictText, ok, strict, why)
				}
			}
			want(false, false, "no client with this node ID is connected")
			w.put(xds.Cluster, "one")
			c := w.client(v, envoy("edge-1"))
			c.Subscribe(xds.Cluster, "*")
			first := c.Next(xds.Cluster)
			want(false, false, "CDS is SENT")
			c.NACK(first, "no")
			time.Sleep(time.Minute)
			want(false, false, "CDS is NACKED") // it has nothing
			w.put(xds.Cluster, "one=2", "two")
			c.ACK(c.Next(xds.Cluster))
			want(false, false, "less than 1s ago") // the client may still ask for listeners
			time.Sleep(time.Second)
			want(true, true, "")
			w.put(xds.Cluster, "three")
			last := c.Next(xds.Cluster)
			want(true, false, "CDS is SENT")
			c.NACK(last, "no")
			want(true, false, "CDS is NACKED")
			c.Close()
			want(false, false, "no client with this node ID is connected")
		})
	}
}
