package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/e2e/tap"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// says is a condition: explain reports the broken link of a resource for a node, with all of these
// texts. An empty link means that no link is broken.
func says(admin *adminclient.Client, node, typ, name, link string, texts ...string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		x, err := admin.Explain(ctx, node, typ, name)
		if err != nil {
			return err
		}
		all := x.Advice
		for _, l := range x.Links {
			if l.Name == link {
				all += " " + l.Text + " " + l.Place
			}
		}
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return fmt.Errorf("nothing says %q: %+v", text, x)
			}
		}
		if x.Broken != link {
			return fmt.Errorf("broken at %q, not at %q: %+v", x.Broken, link, x)
		}
		return nil
	}
}

// administered returns the flags of an admin API, its address and a client of it.
func administered(t *testing.T) (flags []string, at string, admin *adminclient.Client) {
	t.Helper()
	at = "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	admin, err := adminclient.Dial(adminclient.Target{URL: at})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--admin-listen", at}, at, admin
}

// A resource hidden by access rules looks absent to a real Envoy, and explain reports the rule.
// When the rule is corrected, Envoy gets the resource.
func TestExplainNotAllowed(t *testing.T) {
	t.Parallel()
	each(t, "OBS-1 a resource that the rules of access hide", func(t *testing.T, v variant) {
		rules := filepath.Join(t.TempDir(), "access.yaml")
		put := func(names string) {
			t.Helper()
			text := "rules:\n- name: e2e\n  identity: {kind: none}\n  node: {id: e2e}\n  names: {CDS: [" + names + "]}\n"
			if err := os.WriteFile(rules+".next", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(rules+".next", rules); err != nil {
				t.Fatal(err)
			}
		}
		put("backend, other")
		flags, _, admin := administered(t)
		s := siteOf(t, func(w world) *rig { return newRig(t, w, sourcedBy(v, renamed), append(flags, "--access", rules)...) }, func(w world) {
			w.set(edsCluster("private", time.Second), assignment("private", 1))
		})
		s.start(v)
		eventually(t, soon, "an allowed resource is accepted", says(admin, "e2e", "CDS", "backend", ""))
		eventually(t, soon, "a hidden resource is explained", says(admin, "e2e", "CDS", "private", "allowed", "the client may not have it", `may not see CDS "private", by rule e2e`))
		for _, r := range s.Since(0).Responses("CDS") {
			if r.Has("private") {
				t.Errorf("it was sent:\n%v", r)
			}
		}
		s.Mark("the rule is corrected")
		put("backend, other, private")
		eventually(t, soon, "it comes", says(admin, "e2e", "CDS", "private", ""))
		if err := s.envoy.dumps("dynamic_active_clusters", `"private"`)(); err != nil {
			t.Error(err)
		}
	})
}

// An Envoy with the certificate of another node is refused, and explain reports that.
func TestExplainImpersonator(t *testing.T) {
	t.Parallel()
	flags, _, admin := administered(t)
	i := newIdentified(t, flags...)
	i.clientPair(i.clients.issueFor(t, "edge", "spiffe://e2e.example/ns/edge/e2e", time.Hour))
	startEnvoy(t, "victim", delta, i.port, i.mutual)
	for _, what := range [][2]string{{"CDS", "backend"}, {"CDS", ""}, {"", ""}} {
		eventually(t, soon, "the impersonator is reported", says(admin, "victim", what[0], what[1], "allowed", "was refused", "spiffe://e2e.example/ns/edge/e2e", "may not be node"))
	}
}

// The commands of operators show a real gRPC client, also a response that is larger than gRPC
// clients accept.
func TestExplainGRPC(t *testing.T) {
	t.Parallel()
	flags, at, admin := administered(t)
	s := newGRPC(t, golang, flags...)
	s.dial("e2e")
	s.gets("the first call")
	s.quiet()

	s.step("OBS-1 the commands know it", func(t *testing.T) {
		for _, c := range []struct {
			args, says string
		}{
			{"wait --for synced --timeout 10s", ""},
			{"status --all", "e2e"},
			{"status e2e", "gRPC Go"},
			{"explain e2e", "accepted"},
			{"explain e2e eds/greeter", "the client subscribes to it by name"},
			{"explain e2e rds/greeter_route -o json", `"OK": true`},
			{"get cds --node e2e", "greeter"},
			{"get lds/greeter.local --node e2e", "SYNCED"},
			{"get eds/greeter -o json", "greeter"},
			{"diff client:e2e dir:" + s.daemon.dir + " -o json", ""},
		} {
			eventually(t, patience, c.args, func() error {
				cmd := exec.Command(binary, strings.Fields(c.args)...)
				cmd.Env = append(cmd.Environ(), "CHANCERY_ADMIN="+at)
				out, err := cmd.CombinedOutput()
				if err != nil && !strings.HasPrefix(c.args, "diff") || !strings.Contains(strings.ToLower(string(out)), strings.ToLower(c.says)) {
					return fmt.Errorf("%w\n%s", err, out)
				}
				return nil
			})
		}
		// The client does not subscribe to unrelated resources.
		eventually(t, patience, "unsubscribed", says(admin, "e2e", "CDS", "else", "subscribed", "and not to this one"))
	})

	s.step("OBS-1 SOTW-2 endpoints that are too big for it", func(t *testing.T) {
		big := assignment("greeter", s.at.port)
		big.Endpoints[0].LbEndpoints[0].Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"e2e": {Fields: map[string]*structpb.Value{"ballast": structpb.NewStringValue(strings.Repeat("x", 5<<20))}},
		}}
		p := s.commit("its endpoints are too big", func(w world) { w.set(big) })
		s.sees(p, patience, "it gives its stream up", func(rs tap.Records) bool {
			return len(rs.Where(func(r tap.Record) bool { return r.Kind == tap.Close })) > 0
		})
		eventually(t, patience, "too big", says(admin, "e2e", "EDS", "greeter", "connected",
			"it left right after a response of EDS with 5.0 MiB, ", " times; gRPC clients accept 4 MiB by default: the resource has 5.0 MiB", "make it smaller, or raise the client's limit"))
		s.gets("it keeps its resources")
		s.commit("they are small again", func(w world) { w.set(assignment("greeter", s.at.port)) })
		eventually(t, 2*patience, "it has them", says(admin, "e2e", "EDS", "greeter", ""))
		s.gets("it keeps its resources")
	})
	s.step("SAFE-4 a disconnect loop after a response of clusters", func(t *testing.T) {
		big := func(bytes int) *cluster.Cluster {
			c := edsCluster("greeter", time.Second)
			c.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
				"e2e": {Fields: map[string]*structpb.Value{"ballast": structpb.NewStringValue(strings.Repeat("x", bytes))}},
			}}
			return c
		}
		p := s.commit("its cluster is too big", func(w world) { w.set(big(57 << 20 / 10)) })
		s.sees(p, patience, "it gives its stream up", func(rs tap.Records) bool {
			return len(rs.Where(func(r tap.Record) bool { return r.Kind == tap.Close })) > 0
		})
		fails := func(args string, code int, texts ...string) {
			t.Helper()
			eventually(t, patience, args, func() error {
				cmd := exec.Command(binary, strings.Fields(args)...)
				cmd.Env = append(cmd.Environ(), "CHANCERY_ADMIN="+at)
				out, _ := cmd.CombinedOutput()
				for _, text := range texts {
					if !strings.Contains(string(out), text) {
						return fmt.Errorf("%q is missing:\n%s", text, out)
					}
				}
				if got := cmd.ProcessState.ExitCode(); got != code {
					return fmt.Errorf("exit code %d:\n%s", got, out)
				}
				return nil
			})
		}
		const loop = "it left right after a response of CDS with 5.7 MiB, "
		fails("status", 1, "disconnect-loop", loop, " times; gRPC clients accept 4 MiB by default")
		fails("wait --timeout 20s", 1, "not synced: client e2e: "+loop)
		fails("explain e2e", 1, loop)
		s.gets("it keeps its resources")
		s.commit("it is small again", func(w world) { w.set(big(10)) })
		fails("wait --timeout 1m", 0)
		fails("status", 0)
		fails("explain e2e", 0)
	})
	s.leave()
}
