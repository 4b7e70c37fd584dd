package relay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A thousand clients are one stream upstream, and one subscription of a name.
func TestThousandClients(t *testing.T) {
	up := newUpstream(t)
	up.set(xds.Cluster, "a", "b")
	up.set(xds.Endpoint, "e")
	w := relayOf(t, up, "", true, nil)
	clients := make([]*xdstest.Client, 1000)
	for i := range clients {
		clients[i] = xdstest.Delta(t, w.conn, xdstest.WithNode(xds.Node{ID: fmt.Sprint("n", i)}), xdstest.WithTimeout(time.Minute))
		clients[i].Subscribe(xds.Cluster, "*")
		clients[i].Subscribe(xds.Endpoint, "e")
	}
	for _, c := range clients {
		c.Await(xds.Cluster, "a", "b")
		c.Await(xds.Endpoint, "e")
	}
	if s := up.srv.Stats(); s.Open != 1 || s.Streams != 1 {
		t.Errorf("%d streams upstream, %d since the start: want 1", s.Open, s.Streams)
	}
	up.set(xds.Cluster, "a", "b", "c")
	for _, c := range clients {
		c.Await(xds.Cluster, "a", "b", "c")
	}
}

// BenchmarkAdded measures the time that the relay adds to a change, from a commit upstream to a client,
// at the median.
func BenchmarkAdded(b *testing.B) {
	up := newUpstream(b)
	up.set(xds.Cluster, "a")
	w := relayOf(b, up, "", true, nil)
	direct := xdstest.Delta(b, xdstest.Serve(b, up.srv))
	behind := xdstest.Delta(b, w.conn)
	for _, c := range []*xdstest.Client{direct, behind} {
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a")
	}
	var with, without []time.Duration
	for i := 0; b.Loop(); i++ {
		// By turns, so that neither pays for the other.
		c, to := direct, &without
		if i%2 == 0 {
			c, to = behind, &with
		}
		start := time.Now()
		up.content(xds.Cluster, fmt.Sprint(i), "a")
		r := c.Next(xds.Cluster)
		*to = append(*to, time.Since(start))
		c.ACK(r)
		if c == direct {
			c = behind
		} else {
			c = direct
		}
		c.ACK(c.Next(xds.Cluster))
	}
	if len(without) == 0 {
		return
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(without), "ms-direct")
	b.ReportMetric(median(with), "ms-behind")
	b.ReportMetric(median(with)-median(without), "ms-added")
}
