package main

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// withSecret returns a cluster with a secret.
func withSecret(name string) string {
	return fmt.Sprintf(`"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: %s
transport_socket:
  name: tls
  typed_config:
    "@type": type.googleapis.com/xds.type.v3.TypedStruct
    type_url: type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    value: {common_tls_context: {tls_certificates: [{private_key: hunter2Quokkas}]}}
`, name)
}

// A refusal by a relay's client is in the relay's log, metrics and status, and sent upstream if requested:
// without secrets. The client gets the other resources.
func TestRelayRefusals(t *testing.T) {
	t.Parallel()
	for _, pass := range []bool{false, true} {
		t.Run(fmt.Sprint("OBS-1 SAFE-6 passed up: ", pass), func(t *testing.T) {
			t.Parallel()
			up := serve(t, nil, "a.yaml", cluster("a"), "b.yaml", withSecret("b"))
			socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
			flags := []string{"--state-dir", t.TempDir(), "--admin-listen", socket, "--metrics-listen", "127.0.0.1:0"}
			if pass {
				flags = append(flags, "--pass-refusals")
			}
			d := serveDir(t, "xds://"+up.conn.Target()+"?delta&node=relay", flags...)
			stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).DeltaAggregatedResources(d.ctx)
			if err != nil {
				t.Fatal(err)
			}
			send := func(r *discoveryv3.DeltaDiscoveryRequest) {
				r.TypeUrl = xds.Cluster.URL
				_ = stream.Send(r) // Recv returns the reason
			}
			send(&discoveryv3.DeltaDiscoveryRequest{Node: node})
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			const says = "Error adding/updating cluster(s) b: private_key: hunter2Quokkas"
			send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: says}})
			const shown = "Error adding/updating cluster(s) b: private_key: …"
			if line := d.logged("client refused a response (NACK)"); line["error"] != shown {
				t.Errorf("%v", line)
			}
			r, err = stream.Recv() // the quarantine sends the response without b
			if err != nil {
				t.Fatal(err)
			}
			send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})

			chancery(t, 1, shown, "status", "--admin", socket)
			_, port, _ := net.SplitHostPort(d.http)
			d.tells(port, "/metrics", `xds_server_nacks_total{group="default",type="cds"} 1`+"\n")
			if !pass {
				time.Sleep(3 * time.Second) // a second later than the relay would request it again
				for len(up.log) > 0 {
					if line := <-up.log; line["msg"] == "client refused a response (NACK)" {
						t.Errorf("upstream: %v", line)
					}
				}
				return
			}
			line := up.logged("client refused a response (NACK)")
			if got := fmt.Sprint(line["node"], line["resources"], line["error"]); got != "relay[b]b: clients of the relay refuse it: "+shown {
				t.Error(got)
			}
			chancery(t, 1, "1 resource of it refused", "status", "--admin", socket)
		})
	}
}

// Contradicting flags of a relay are an error.
func TestRelayFlags(t *testing.T) {
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"--validate is about files, and xds://up has none", []string{"xds://up", "--validate"}},
		{"--load-at-once is about files, and xds://up has none", []string{"xds://up", "--load-at-once"}},
		{"--load-at-once is about files, and file:store has none", []string{"--store", "file:store", "--load-at-once"}},
		{"--max-file is about files, and xds://up has none", []string{"xds://up", "--max-file", "1MiB"}},
		{"--confirm-removals is about files", []string{"xds://up", "--confirm-removals", "1s"}},
		{"--pass-refusals needs a relay, and DIR is a directory", []string{"DIR", "--pass-refusals"}},
		{"--max-upstream needs a relay, and DIR is a directory", []string{"DIR", "--max-upstream", "1GiB"}},
		{"--pass-refusals needs a delta relay", []string{"xds://up", "--pass-refusals"}},
		{"--pass-refusals needs --quarantine", []string{"xds://up?delta", "--pass-refusals", "--quarantine=false"}},
		{"after the ? there may be", []string{"xds://up?what"}},
	} {
		chancery(t, 2, tt.want, append([]string{"serve", "--listen", "127.0.0.1:0"}, tt.args...)...)
	}
}
