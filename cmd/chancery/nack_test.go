package main

import (
	"fmt"
	"path/filepath"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// What an operator sees of a client: that it comes, what it refuses and where that stands,
// that it accepts again, and that it goes.
func TestClientIsSeen(t *testing.T) {
	t.Parallel()
	d := serve(t, nil, "a.yaml", cluster("a"), "b.yaml", "# the bad one\n"+cluster("b"))
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) b: no"}})
	if line := d.logged("client connected"); line["node"] != "test" || line["api"] != "CDS" || line["peer"] == "" {
		t.Errorf("OBS-3 %v", line)
	}
	line := d.logged("client refused a response")
	if got, want := fmt.Sprintf("%v %v", line["resources"], line["at"]), fmt.Sprintf("[b a] [%s:2:1 %s:1:1]", filepath.Join(d.dir, "b.yaml"), filepath.Join(d.dir, "a.yaml")); got != want || line["nonce"] != r.GetNonce() {
		t.Errorf("OBS-1 %v, want %s", line, want)
	}
	write(t, d.dir, "b.yaml", cluster("c"))
	s.gets("a", "c")
	if line := d.logged("client accepts what it refused before"); line["node"] != "test" || line["type"] != "CDS" {
		t.Errorf("OBS-3 %v", line)
	}
	if err := s.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if line := d.logged("client left"); line["node"] != "test" || line["code"] != "OK" {
		t.Errorf("OBS-3 %v", line)
	}
}
