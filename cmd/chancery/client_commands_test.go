package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// The user of a server has a client sent its resources again, also a refused one, and ends its streams. The
// open local port is not enough for that: the commands find the control socket.
func TestResyncAndDisconnect(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{"--admin-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"), "b.yaml", cluster("b"))
	admin, _ := d.loggedAround("admin API")["http"].(string)
	asks := d.asks("http://" + admin)
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) b: file not found"}})
	s.gets("a") // b is in quarantine
	asks("explain test cluster/b", 1, "chancery resync test CDS/b")
	asks("resync test cluster/b", 0, "ok: test is sent again on 1 stream:", "(1 refused version out of quarantine)")
	if line := d.logged("client command requested"); line["command"] != "resync" || line["node"] != "test" || line["name"] != "b" || !strings.HasPrefix(line["author"].(string), "unix socket") {
		t.Errorf("logged %v", line)
	}
	s.gets("a", "b")
	asks("wait --for=synced --timeout 5s", 0, "ok: 1 connected: 1 synced")
	asks("resync test", 0, "2 resources of CDS")
	s.gets("a", "b")
	asks("resync test listener", 4, "nothing to send")
	asks("resync other", 4, "no client with the node id")
	asks("resync --all --group none --yes", 4, "none")
	asks("resync --all --group default --yes", 0, "1 stream within")
	s.gets("a", "b")

	for _, path := range []string{"clients/test/disconnect", "groups/default/disconnect"} {
		resp, err := http.Post("http://"+admin+"/api/v1/"+path, "application/json", nil) //nolint:noctx // the test ends it
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("SAFE-6 %s on the open local port: %s", path, resp.Status)
		}
	}
	asks("disconnect test", 0, "ok: 1 stream of test: ended")
	if _, err := s.stream.Recv(); grpcstatus.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "an operator has ended the stream") {
		t.Error(err)
	}
	asks("disconnect test", 4, `the client "test" is not connected: it left at 20`, "hint: it gets its resources when it connects")
	asks("resync test", 4, `the client "test" is not connected: it left at 20`)
}

// A probe of a client gets 200 once the client has accepted its configuration, and keeps it while the client
// refuses a newer version.
func TestReadinessOfClient(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{"--admin-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
	admin, _ := d.loggedAround("admin API")["http"].(string)
	answers := func(query string, want int) {
		t.Helper()
		for _, at := range []string{admin, d.http} {
			got := 0
			for start := time.Now(); got != want && time.Since(start) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
				resp, err := http.Get("http://" + at + "/ready?node=test" + query) //nolint:noctx // the test ends it
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				got = resp.StatusCode
			}
			if got != want {
				t.Errorf("%s%s: %d, want %d", at, query, got, want)
			}
		}
	}
	answers("", 503)
	s := d.clusters()
	s.gets("a")
	answers("", 200)
	answers("&strict=1", 200)
	write(t, d.dir, "a.yaml", cluster("a")+"\nconnect_timeout: 7s\n")
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "Error adding/updating cluster(s) a: no"}})
	answers("&strict=1", 503)
	answers("", 200)
}
