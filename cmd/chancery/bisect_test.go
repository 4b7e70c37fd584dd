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

// A client refuses one of 50 changed clusters without naming it. Within seconds it has the other clusters,
// and the server reports the refused cluster with its place.
func TestBisectionFindsRefusedCluster(t *testing.T) {
	t.Parallel()
	const n, bad, mended = 50, "c37", "c37m"
	dir := t.TempDir()
	files := func(more string) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("c%02d.yaml", i), "# a cluster\n"+cluster(fmt.Sprintf("c%02d", i))+more)
		}
		return all
	}
	write(t, dir, files("")...)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	d := serveDir(t, dir, "--admin-listen", "unix://"+socket)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).DeltaAggregatedResources(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *discoveryv3.DeltaDiscoveryRequest) {
		r.TypeUrl = xds.Cluster.URL
		_ = stream.Send(r) // Recv returns the error
	}
	type step struct{ first, moved, refusals int }
	steps := make(chan step, 1000)
	// The client applies all resources of a response or none, and refuses the change of one cluster.
	go func() {
		defer close(steps)
		var at step
		first, moved := map[string]string{}, map[string]bool{}
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			if slices.ContainsFunc(r.GetResources(), func(r *discoveryv3.Resource) bool {
				return r.GetName() == bad && first[bad] != "" && r.GetVersion() != first[bad]
			}) {
				at.refusals++
				send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "no"}})
				continue
			}
			for _, one := range r.GetResources() {
				if v, known := first[one.GetName()]; !known {
					first[one.GetName()] = one.GetVersion()
				} else if v != one.GetVersion() {
					moved[one.GetName()] = true
				}
			}
			send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})
			at.first, at.moved = len(first), len(moved)
			steps <- at
		}
	}()
	until := func(done func(step) bool) (at step) {
		t.Helper()
		for at = range steps {
			if done(at) {
				return at
			}
		}
		t.Fatalf("the stream ended at %+v", at)
		return at
	}
	send(&discoveryv3.DeltaDiscoveryRequest{Node: node, ResourceNamesSubscribe: []string{xds.Wildcard}})
	until(func(at step) bool { return at.first == n })
	begin := time.Now()
	write(t, dir, files("connect_timeout: 2s\n")...)
	at := until(func(at step) bool { return at.moved == n-1 })
	if took := time.Since(begin); took > 10*time.Second || at.refusals > 2*6 {
		t.Errorf("DELTA-1 %d refusals and %v until it has the others", at.refusals, took)
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
	until(func(at step) bool { return at.first == n+1 })
	asks("wait --for=synced --timeout 5s", 0, "1 synced")
}
