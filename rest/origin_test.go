package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// "REST refuses a request with an Origin, whatever its Host (Envoy's Host is a cluster name)."
func TestPollOfWebPage(t *testing.T) {
	within(t, "SAFE-16 a poll of a web page gets no resource", func(t *testing.T) {
		w := newWorld(t)
		w.set("a")
		for i, tt := range []struct {
			what         string
			method, path string
			header       http.Header
			code         int
		}{
			{"Envoy, whose Host is a cluster name", "POST", xds.Cluster.REST, http.Header{"Content-Type": {"application/json"}}, 200},
			{"curl", "POST", xds.Cluster.REST, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 200},
			{"another origin", "POST", xds.Cluster.REST, http.Header{"Origin": {"http://evil.example"}, "Content-Type": {"text/plain"}}, 403},
			{"DNS rebinding", "POST", xds.Cluster.REST, http.Header{"Origin": {"http://xds"}}, 403},
			{"the loopback", "POST", xds.Cluster.REST, http.Header{"Origin": {"http://localhost:3000"}}, 403},
			{"a file or a sandbox", "POST", xds.Cluster.REST, http.Header{"Origin": {"null"}}, 403},
			{"an empty Origin", "POST", xds.Cluster.REST, http.Header{"Origin": {""}}, 403},
			{"a form", "POST", xds.Cluster.REST, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
			{"another port", "POST", xds.Cluster.REST, http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
			{"a CORS preflight", "OPTIONS", xds.Cluster.REST, http.Header{"Origin": {"http://evil.example"}, "Access-Control-Request-Method": {"POST"}}, 403},
			{"an unknown path", "GET", "/", http.Header{"Origin": {"http://evil.example"}}, 403},
		} {
			r, err := w.client().do(t.Context(), tt.method, tt.path, tt.header, fmt.Sprintf(`{"node":{"id":"n%d"}}`, i))
			if err != nil {
				t.Fatal(err)
			}
			if r.StatusCode != tt.code || strings.Contains(string(r.body), "resources") != (tt.code == 200) {
				t.Errorf("%s: %d %s, want %d", tt.what, r.StatusCode, r.body, tt.code)
			}
			for name := range r.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s", tt.what, name)
				}
			}
		}
	})
}
