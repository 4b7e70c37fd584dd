package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	csds "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
)

// The server's view of a real Envoy's resources equals the Envoy's own view: by commands, by CSDS
// and as a config_dump.
func TestSeen(t *testing.T) {
	t.Parallel()
	each(t, "OBS-1 the server and Envoy agree", func(t *testing.T, v variant) {
		socket := filepath.Join(t.TempDir(), "admin.sock")
		at := "unix://" + socket
		s := siteOf(t, func(w world) *rig { return newRig(t, w, sourcedBy(v, renamed), "--admin-listen", at) })
		s.start(v)
		for _, args := range [][]string{
			{"wait", "--for", "synced", "--timeout", "10s"}, {"status"}, {"status", "e2e"}, {"explain", "e2e"}, {"explain", "e2e", "route/ingress"},
			{"diff", "client:e2e", "envoy://" + s.envoy.Admin}, {"diff", "dir:" + s.daemon.dir, "envoy://" + s.envoy.Admin},
		} {
			eventually(t, soon, fmt.Sprint(args), func() error {
				cmd := exec.Command(binary, args...)
				cmd.Env = append(cmd.Environ(), "CHANCERY_ADMIN="+at)
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%w\n%s", err, out)
				}
				return nil
			})
		}

		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r, err := csds.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(t.Context(), &csds.ClientStatusRequest{
			NodeMatchers: []*matcher.NodeMatcher{{NodeId: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: "e2e"}}}},
		})
		if err != nil || len(r.GetConfig()) != 1 {
			t.Fatal(r, err)
		}
		var names []string
		for _, c := range r.GetConfig()[0].GetGenericXdsConfigs() {
			names = append(names, c.GetName())
			if c.GetConfigStatus() != csds.ConfigStatus_SYNCED || c.GetClientStatus() != admin.ClientResourceStatus_ACKED {
				t.Errorf("%s %s is %s, %s", c.GetTypeUrl(), c.GetName(), c.GetConfigStatus(), c.GetClientStatus())
			}
		}
		for _, want := range []string{"backend", "other", "ingress", "side"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s is missing among %q", want, names)
			}
		}

		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
		resp, err := c.Get("http://localhost/config_dump?node=e2e")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var dump admin.ConfigDump
		if err := protojson.Unmarshal(b, &dump); err != nil || len(dump.GetConfigs()) < 4 {
			t.Errorf("%d parts of a config_dump, %v", len(dump.GetConfigs()), err)
		}
	})
}
