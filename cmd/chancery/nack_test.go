package main

import (
	"fmt"
	"path/filepath"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// An operator sees that a client connects, refuses a resource (with its place), accepts again, and leaves.
func TestOperatorSeesClient(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{"--quarantine=false"}, "a.yaml", cluster("a"), "b.yaml", "# the bad one\n"+cluster("b"))
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) b: no"}})
	if line := d.logged("client connected"); line["node"] != "test" || line["api"] != "CDS" || line["peer"] == "" {
		t.Errorf("OBS-3 %v", line)
	}
	line := d.logged("client refused a response (NACK)")
	if got, want := fmt.Sprintf("%v %v", line["resources"], line["at"]), fmt.Sprintf("[b] [%s:2:1]", filepath.Join(d.dir, "b.yaml")); got != want || line["nonce"] != r.GetNonce() {
		t.Errorf("OBS-1 %v, want %s", line, want)
	}
	write(t, d.dir, "b.yaml", cluster("c"))
	s.gets("a", "c")
	if line := d.logged("client no longer refuses a type"); line["node"] != "test" || line["type"] != "CDS" {
		t.Errorf("OBS-3 %v", line)
	}
	if err := s.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if line := d.logged("client left"); line["node"] != "test" || line["code"] != "OK" {
		t.Errorf("OBS-3 %v", line)
	}
}

// The error of Envoy 1.40 about an invalid key contains the key.
func TestNackOfSecret(t *testing.T) {
	t.Parallel()
	const says = "Unable to parse JSON as proto (INVALID_ARGUMENT: invalid JSON in envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext @ common_tls_context.tls_certificates[0].private_key: message envoy.config.core.v3.DataSource, near 1:59 (offset 58): unexpected character: '\"'; expected '{'): "
	d := serve(t, nil, "a.yaml", `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: a
transport_socket:
  name: tls
  typed_config:
    "@type": type.googleapis.com/xds.type.v3.TypedStruct
    type_url: type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    value: {common_tls_context: {tls_certificates: [{private_key: hunter2Quokkas}]}}
`)
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: says + "private_key: hunter2Quokkas, ['hunter2Quokkas']"}})
	if got := d.logged("client refused a response (NACK)")["error"]; got != says+"private_key: …, ['…']" {
		t.Errorf("SAFE-6 %v", got)
	}
}
