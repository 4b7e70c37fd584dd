package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/treetest"

	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/export"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/internal/testkit/upstreamtest"
	"github.com/chancery-xds/chancery/xds"
)

// FILE-4 SAFE-10: an agent writes nothing before the server has answered for all resources and their
// references. It unsubscribes from resources to which no other refers any more, and retries a failed
// export.
func TestAgentWritesOnlyCompleteConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstreamtest.New()
		a := agent{wants: map[xds.Ref]bool{}}
		out := mirrored(t, &a, up)
		writes := func(want bool, text string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := written(t, out, text); got != want {
				t.Errorf("%q is written: %v", text, got)
			}
		}

		up.Send(xds.Cluster, upstreamtest.Cluster(t, "first"))
		writes(false, "first")
		up.Send(xds.Listener, upstreamtest.Listener(t, "in", "r"))
		writes(false, "first")
		if !up.Wants(xds.Route, "r") {
			t.Fatal("the agent does not subscribe to the routes")
		}
		up.Send(xds.Route, upstreamtest.Routes(t, "r", "first"))
		writes(true, "prefix: /")
		writes(true, "first")

		time.Sleep(2 * time.Minute)
		up.Send(xds.Cluster, upstreamtest.Cluster(t, "second")) // the agent still subscribes to all clusters, even though a route refers to one cluster
		writes(true, "second")

		up.Send(xds.Listener, upstreamtest.Listener(t, "in", "other"))
		up.Send(xds.Route, upstreamtest.Routes(t, "other", "second"))
		time.Sleep(2 * time.Minute)
		if up.Wants(xds.Route, "r") || !up.Wants(xds.Route, "other") {
			t.Error("the agent still subscribes to r, or not to other")
		}

		away := out + ".away"
		if err := errors.Join(os.Rename(out, away), os.WriteFile(out, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		up.Send(xds.Cluster, upstreamtest.Cluster(t, "third"))
		writes(false, "third")
		if err := errors.Join(os.Remove(out), os.Rename(away, out)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryInterval)
		writes(true, "third")

		for what, harm := range map[string]func() error{
			"OUT":                func() error { return os.RemoveAll(out) },
			"the link":           func() error { return os.Remove(filepath.Join(out, "current")) },
			"what it leads to":   func() error { return os.RemoveAll(filepath.Join(out, ".generations")) },
			"a file":             func() error { return os.Remove(filepath.Join(out, "current", "cds.yaml")) },
			"the text of a file": func() error { return os.Truncate(filepath.Join(out, "current", "cds.yaml"), 3) },
		} {
			synctest.Wait() // wait until the agent waits for its next check
			before := treetest.Tree(t, filepath.Join(out, "current"))
			if err := harm(); err != nil {
				t.Fatal(what, err)
			}
			time.Sleep(retryInterval + time.Second)
			synctest.Wait()
			if now := treetest.Tree(t, filepath.Join(out, "current")); !maps.Equal(before, now) {
				t.Errorf("%s is unreachable: the files are %v, want %v", what, now, before)
			}
		}
	})
}

// mirrored starts an agent of an upstream, and returns the agent's directory.
func mirrored(t *testing.T, a *agent, up *upstreamtest.Upstream) (out string) {
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.watch, a.options.Types = true, envoy.Envoy()
	_, src, st := up.FollowWith(t, a.relayOptions())
	out = filepath.Join(t.TempDir(), "out")
	var err error
	if a.to, err = export.Open(out, export.Options{}); err != nil {
		t.Fatal(err)
	}
	w, err := src.Watch(t.Context(), &xds.Node{ID: "n"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.mirror(ctx, w, st) }()
	t.Cleanup(func() { cancel(); <-done; w.Close(); a.to.Close() })
	synctest.Wait()
	return out
}

// The names to which resources refer count in the limit of an agent, which has no other limit of names.
func TestAgentLimitsReferences(t *testing.T) {
	routes := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("r", i))
		}
		return list
	}
	t.Run("SAFE-14 beyond the limit, the last good files stay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := upstreamtest.New()
			var log logtest.Log
			a := agent{wants: map[xds.Ref]bool{}, held: xds.MemoryLimit{Bytes: 40 << 10, Hint: "--max-upstream"}}
			a.log = slog.New(slog.NewTextHandler(&log, nil))
			out := mirrored(t, &a, up)
			up.Send(xds.Cluster, upstreamtest.Cluster(t, "first"))
			up.Send(xds.Listener, upstreamtest.Listener(t, "in", "r0"))
			up.Send(xds.Route, upstreamtest.Routes(t, "r0", "first"))
			time.Sleep(time.Second)
			up.Send(xds.Listener, upstreamtest.Listener(t, "in", routes(100)...))
			up.Send(xds.Cluster, upstreamtest.Cluster(t, "second"))
			time.Sleep(time.Minute)
			if n := len(log.Lines("--max-upstream")); n != 1 {
				t.Errorf("%d log lines have the flag: %s", n, log.String())
			}
			if up.Wants(xds.Route, "r99") || !up.Wants(xds.Route, "r0") {
				t.Error("the subscriptions have changed")
			}
			if !written(t, out, "first") || written(t, out, "second") {
				t.Error("the files have changed")
			}
			up.Send(xds.Listener, upstreamtest.Listener(t, "in", "r0"))
			time.Sleep(time.Minute)
			if !written(t, out, "second") {
				t.Error("the files do not change after the references have gone")
			}
		})
	})
	t.Run("SAFE-14 more than 100,000 names", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := upstreamtest.New()
			var log logtest.Log
			a := agent{wants: map[xds.Ref]bool{}}
			a.log = slog.New(slog.NewTextHandler(&log, nil))
			mirrored(t, &a, up)
			up.Send(xds.Cluster, upstreamtest.Cluster(t, "first"))
			up.Send(xds.Listener, upstreamtest.Listener(t, "in", routes(100_001)...))
			time.Sleep(time.Second)
			if !up.Wants(xds.Route, "r100000") || len(log.Lines("exceeds the limits")) > 0 {
				t.Errorf("the agent does not subscribe to all names: %s", log.String())
			}
		})
	})
}

// An upstream cannot take all memory of an agent.
func TestAgentLimitsUpstream(t *testing.T) {
	a := agent{limits: xdsclient.Limits{All: 1 << 20, Response: 1 << 16}}
	a.options.Types = envoy.Envoy()
	up, err := a.Server("xds://up")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := a.clientConfig(up, &xds.Node{ID: "n"})
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.Servers[0].Transport.Close()
	if up.Response.Bytes != 1<<16 || !strings.Contains(up.Response.Hint, "the agent has --max-upstream-response for more") {
		t.Errorf("SAFE-14 a response: %+v", up.Response)
	}
	if cfg.Held.Bytes != 1<<20 || !strings.Contains(cfg.Held.Hint, "the agent has --max-upstream for more") {
		t.Errorf("SAFE-14 all resources: %+v", cfg.Held)
	}
	checks := bytes.Repeat([]byte{8<<3 | 2, 0}, 10_000) // health checks without content
	if err := cfg.Check(xds.NewResource(xds.Cluster, "a", append([]byte("\x0a\x01a"), checks...))); err == nil || !strings.Contains(err.Error(), "--max-upstream") {
		t.Errorf("SAFE-14 a resource with many messages: %v", err)
	}
	for _, flag := range []string{"--max-upstream", "--max-upstream-response"} {
		cmd := Agent()
		cmd.SetArgs([]string{"xds://up", t.TempDir(), flag, "64"})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), flag+": 64 is too small") {
			t.Errorf("SAFE-14 %s 64: %v", flag, err)
		}
	}
}

// written reports whether a file of a directory contains a text.
func written(t *testing.T, dir, text string) (is bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		is = is || strings.Contains(string(b), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}
