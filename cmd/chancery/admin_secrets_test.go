package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// No answer to a GET request of the admin API, and no event, has a secret: not from a resource, a comment, a line near an error,
// or the text of a NACK.
func TestAdminAPIShowsNoSecret(t *testing.T) {
	t.Parallel()
	const says = "Unable to parse JSON as proto (INVALID_ARGUMENT: invalid JSON in envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext @ common_tls_context.tls_certificates[0].private_key: message envoy.config.core.v3.DataSource, near 1:59 (offset 58): unexpected character: '\"'; expected '{'): "
	good := "# the password is " + canary + "\n" + `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: a
transport_socket:
  name: tls # ` + canary + `
  typed_config:
    "@type": type.googleapis.com/xds.type.v3.TypedStruct
    type_url: type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    value: {common_tls_context: {tls_certificates: [{private_key: ` + canary + `}]}}
`
	d := serve(t, []string{"--quarantine=false", "--endpoints"}, "a.yaml", good, "s.yaml", "# "+canary+"\n"+strings.Replace(secret, "inline_string: pw", "inline_string: "+canary, 1))
	at := "http://" + adminOf(t, d)
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: says + "private_key: " + canary + ", ['" + canary + "']"}})
	d.logged("client refused a response (NACK)")
	// An error next to a secret: the load is rejected.
	write(t, d.dir, "a.yaml", strings.Replace(good, "name: a\n", "name: a\npassword: "+canary+"\nconnect_timeout: 5x # "+canary+"\n", 1))
	d.logged("reload rejected, keeping the previous configuration")
	values := strings.NewReplacer("{node}", "test", "{type}", "SDS", "{name}", "key", "{group}", "default", "{cluster}", "a", "{id}", "i", "{rev}", "head")
	paths := []string{"/config_dump?node=test", "/api/v1/events?stop=1", "/api/v1/status?replicas=1", "/api/v1/clients?all=1&left=1", "/api/v1/resources/CDS/a", "/api/v1/clients/test/resources/CDS/a",
		"/api/v1/clients/test/explain?type=CDS&name=a", "/api/v1/wait?timeout=1ms", "/api/v1/wait/synced?timeout=1ms", "/api/v1/references/CDS/a", "/"}
	for _, m := range regexp.MustCompile(`(?m)^  (/\S+):\n    get:`).FindAllStringSubmatch(string(api.OpenAPI), -1) {
		switch m[1] {
		case "/api/v1/events", "/api/v1/wait", "/api/v1/wait/synced": // do not end, or last long
		default:
			paths = append(paths, values.Replace(m[1]))
		}
	}
	if len(paths) < 40 {
		t.Fatalf("%d paths: the expression does not fit the document any more", len(paths))
	}
	all := ""
	for _, path := range paths {
		t.Run("SAFE-6 "+path, func(t *testing.T) {
			client := &http.Client{Timeout: 20 * time.Second}
			resp, err := client.Get(at + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
			if strings.Contains(string(b), canary) || strings.Contains(string(b), "aHVudGVyMlF1b2trYXM") {
				t.Errorf("%s", b)
			}
		})
	}
	for _, want := range []string{"Unable to parse JSON as proto", "a.yaml:", `"kind":"nack"`, `"kind":"reject"`, `"name":"key"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no answer has %s, so this test proves nothing", want)
		}
	}
}
