package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Only who has something of the type, and refuses it since the time that is asked for, has fallen.
func TestTaken(t *testing.T) {
	for _, v := range variants {
		within(t, v.String(), func(w *world) {
			w.put(xds.Cluster, "one")
			healthy, sick := w.client(v, envoy("healthy")), w.client(v, envoy("sick"))
			healthy.Subscribe(xds.Cluster, "*")
			sick.Subscribe(xds.Cluster, "*")
			healthy.ACK(healthy.Next(xds.Cluster))
			sick.NACK(sick.Next(xds.Cluster), "no")
			want := func(groups []string, since time.Time, clients, acked, refused, waiting int, fallen ...string) {
				t.Helper()
				synctest.Wait()
				k := w.Taken(groups, since)
				if k.Clients != clients || k.Acked != acked || k.Refused != refused || k.Waiting != waiting || len(k.Fallen) != len(fallen) {
					t.Fatalf("%+v", k)
				}
				for i, f := range k.Fallen {
					if f.Node != fallen[i] || f.Type != xds.Cluster || f.Text != "cluster two is bad" || len(f.Names) != 1 || f.Names[0] != "two" {
						t.Errorf("%+v", f)
					}
				}
			}
			edge := []string{"other", "edge"}
			want(edge, time.Time{}, 2, 1, 1, 0)
			want([]string{"other"}, time.Time{}, 0, 0, 0, 0)
			time.Sleep(time.Second)
			since := time.Now()
			w.put(xds.Cluster, "two")
			want(edge, since, 2, 0, 1, 1)
			r := healthy.Next(xds.Cluster)
			sick.NACK(sick.Next(xds.Cluster), "cluster two is bad")
			time.Sleep(time.Second)
			healthy.NACK(r, "cluster two is bad")
			want(edge, since, 2, 0, 2, 0, "healthy")
			want(edge, time.Now().Add(time.Second), 2, 0, 2, 0)
			healthy.Close()
			want(edge, since, 1, 0, 1, 0)
		})
	}
}
