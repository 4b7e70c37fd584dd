package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	lua "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// unsupported is the text in the error of a call when the listener has an HTTP filter that the client
// does not support. Calls of gRPC for Node wait for another listener until their deadline.
var unsupported = map[string]string{
	"go":     `no filter implementation found for "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"`,
	"python": "unsupported filter type",
	"node":   "DeadlineExceeded",
	"java":   "HttpFilter [lua](type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua) is required but unsupported",
}

// A client that refuses its first listener fails its calls with the reason. gRPC for Java replaces the
// reason by NOT_FOUND when a response lacks the listener, so the server sends no such response.
func TestWithheldListenerKeepsTheReason(t *testing.T) {
	t.Parallel()
	everyGRPC(t, func(t *testing.T, of implementation) {
		flags, at, _ := administered(t)
		s := newGRPC(t, of, append(flags, "--quarantine")...)
		s.provoked = "SOTW-5" // retries and the command resync send the refused content again (HEAL-2)
		reason := unsupported[of.name]
		fails := func(call caller) func() error {
			if of.name == "node" {
				return hasty(call).fails(reason)
			}
			return call.fails(reason)
		}
		nacks := func(p tap.Point, n int) {
			s.t.Helper()
			s.sees(p, patience, fmt.Sprint(n, " NACKs"), func(rs tap.Records) bool { return len(rs.NACKs("LDS")) >= n })
			s.quiet()
		}
		keeps := func(call caller) {
			s.t.Helper()
			if err := fails(call)(); err != nil {
				s.t.Errorf("the error of a call lacks %q: %v", reason, err)
			}
			for _, r := range s.Since(0).Responses("LDS") {
				if !r.Has("greeter.local") {
					s.t.Errorf("a response without the refused listener:\n%v", r)
				}
			}
		}
		s.commit("the listener has an unsupported filter", func(w world) { w.set(filteredListener("1")) })
		eventually(t, patience, "the daemon has read the files", func() error {
			if n := len(s.daemon.logged("loaded")); n < 2 {
				return fmt.Errorf("loaded %d times", n)
			}
			return nil
		})

		s.step("HEAL-1 the first version is refused", func(t *testing.T) {
			s.dial("e2e")
			eventually(t, patience, "calls fail with the reason", fails(s.call))
			nacks(0, 1)
			eventually(t, soon, "the listener is in quarantine", func() error {
				lines := s.daemon.logged("resource in quarantine: the client refuses it, and gets the others")
				if len(lines) != 1 || lines[0]["resource"] != "greeter.local" {
					return fmt.Errorf("%v", lines)
				}
				return nil
			})
			keeps(s.call)
		})

		s.step("HEAL-1 resent by resync", func(t *testing.T) {
			p := s.Mark("resync")
			cmd := exec.Command(binary, "resync", "e2e", "lds/greeter.local")
			cmd.Env = append(cmd.Environ(), "CHANCERY_ADMIN="+at)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			nacks(p, 1)
			keeps(s.call)
		})

		s.step("HEAL-1 the next version is refused", func(*testing.T) {
			nacks(s.commit("another version", func(w world) { w.set(filteredListener("2")) }), 1)
			keeps(s.call)
		})

		var second caller
		s.step("HEAL-1 a second client of the node", func(t *testing.T) {
			p := s.Mark("a second client")
			second, _ = of.dial(s.whole, "e2e", s.Addr().Port)
			eventually(t, patience, "calls fail with the reason", fails(second))
			nacks(p, 1)
			keeps(second)
			keeps(s.call)
		})

		s.step("HEAL-1 removed from the files", func(t *testing.T) {
			p := s.commit("removed", func(w world) { w.drop(apiListener("greeter.local", "")) })
			s.sees(p, patience, "a response without the listener for each client", func(rs tap.Records) bool { return len(rs.ACKs("LDS")) >= 2 })
			s.quiet()
			if of.name == "java" {
				eventually(t, soon, "the client reports a missing listener", s.call.fails("NOT_FOUND: Resource greeter.local does not exist"))
			} else if err := fails(s.call)(); err != nil {
				t.Errorf("the error of a call lacks %q: %v", reason, err)
			}
		})

		s.step("HEAL-1 corrected", func(t *testing.T) {
			p := s.commit("corrected", func(w world) { w.set(apiListener("greeter.local", "greeter_route")) })
			s.gets("calls succeed")
			eventually(t, patience, "calls of the second client succeed", second.gets(answer{s.at.name, ""}))
			s.quiet()
			exactly(t, 0, "NACK", s.Since(p).NACKs())
		})
	})
}

// hasty returns a caller whose calls have a short deadline.
func hasty(call caller) caller {
	return func(ctx context.Context) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		return call(ctx)
	}
}

// filteredListener is refused by gRPC, which does not support its HTTP filter. Two with different
// prefixes differ.
func filteredListener(prefix string) *listener.Listener {
	m := manager("greeter.local", "greeter_route")
	m.StatPrefix = prefix
	m.HttpFilters = append([]*hcm.HttpFilter{{
		Name:       "lua",
		ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&lua.Lua{})},
	}}, m.HttpFilters...)
	return &listener.Listener{Name: "greeter.local", ApiListener: &listener.ApiListener{ApiListener: pack(m)}}
}
