package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A client that refuses one of 50 new clusters, and does not say which: it has the others within seconds,
// and the server says who is at fault, and where that stands.
func TestBisecting(t *testing.T) {
	t.Parallel()
	const n, bad, mended = 50, "c37", "c37m"
	dir := t.TempDir()
	for i := range n {
		write(t, dir, fmt.Sprintf("c%02d.yaml", i), "# a cluster\n"+cluster(fmt.Sprintf("c%02d", i)))
	}
	socket := filepath.Join(t.TempDir(), "admin.sock")
	d := serveDir(t, dir, "--admin-listen", "unix://"+socket)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).DeltaAggregatedResources(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	begin, accepted, refusals := time.Now(), map[string]bool{}, 0
	send := func(r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		r.TypeUrl = xds.Cluster.URL
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	// answer answers one response, as a client does that applies all of it or nothing.
	answer := func() {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatalf("%v, after %d refusals; it has %d", err, refusals, len(accepted))
		}
		is := func(r *discoveryv3.Resource) bool { return r.GetName() == bad }
		if slices.ContainsFunc(r.GetResources(), is) {
			refusals++
			send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "no"}})
			return
		}
		for _, one := range r.GetResources() {
			accepted[one.GetName()] = true
		}
		send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})
	}
	send(&discoveryv3.DeltaDiscoveryRequest{Node: node, ResourceNamesSubscribe: []string{xds.Wildcard}})
	for len(accepted) < n-1 {
		answer()
	}
	if took := time.Since(begin); took > 10*time.Second || refusals > 2*6 {
		t.Errorf("DELTA-1 %d refusals and %v until it has the others", refusals, took)
	}
	line := d.logged("resource in quarantine: the client refuses it, and gets the others")
	place := filepath.Join(dir, bad+".yaml:2:1")
	if line["resource"] != bad || line["by"] != "found by bisecting" || line["at"] != place {
		t.Errorf("OBS-1 %v", line)
	}
	asks := d.asks("unix://" + socket)
	asks("status", 1, "0 synced, 1 refusing", place)
	asks("status test", 1, "in quarantine: "+bad, "found by bisecting")
	asks("get all --node test", 0, "CDS "+bad+" NACKED", place)
	asks("explain test cluster/"+bad, 1, "✘ accepted", place, "found by bisecting")
	asks("explain test cluster/c00", 0, "✔ accepted")
	asks("get events --node test", 0, " quarantine test CDS ", bad, "found by bisecting", place)
	asks("get nacks", 0, place)

	write(t, dir, bad+".yaml", cluster(mended))
	for !accepted[mended] {
		answer()
	}
	asks("wait --for=synced --timeout 5s", 0, "1 synced")
}
