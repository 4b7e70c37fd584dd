package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/internal/testkit/upstreamtest"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A relay is ready when the upstream has answered. Until then /readyz has the reason.
func TestRelayReadyAfterFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstreamtest.New()
		up.Away = errors.New("connection refused")
		r := &relaySource{upstream: &xdsclient.Server{Text: "xds://up"}}
		r.client, r.source, _ = up.Follow(t)
		synctest.Wait()
		if err := r.ready(); err == nil || err.Error() != "the upstream xds://up has not answered yet, and none of its resources are stored: connection refused" {
			t.Error(err)
		}
		if got := r.note(); got != "xds://up, which has not answered yet" {
			t.Error(got)
		}
		up.Mu.Lock()
		up.Away = nil
		up.Mu.Unlock()
		time.Sleep(3 * time.Minute) // the client connects again
		up.Send(xds.Cluster, upstreamtest.Cluster(t, "a"))
		if err := r.ready(); err != nil {
			t.Error(err)
		}
		if got := r.note(); !strings.HasPrefix(got, "xds://up, connected since ") {
			t.Error(got)
		}
	})
}

// A relay rejects flags about files, and other sources reject flags about an upstream. A relay rejects --pass-refusals
// if the flag cannot work.
func TestRelayRejectsFlags(t *testing.T) {
	for _, tt := range []struct {
		url        string
		pass, find bool // --pass-refusals and --quarantine
		want       string
	}{
		{"xds://up?delta", true, true, ""},
		{"xds://up", false, true, ""},
		{"xds://up", true, true, "--pass-refusals needs a delta relay"},
		{"xds://up?delta", true, false, "--pass-refusals needs --quarantine"},
	} {
		c := Config{passRefusals: tt.pass, quarantine: tt.find}
		if err := c.checkSource(func(string) bool { return false }, tt.url); err == nil != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		}
	}
	for _, flag := range slices.Concat(fileFlagNames, relayFlagNames) {
		if Command().Flags().Lookup(flag) == nil {
			t.Errorf("serve has no --%s", flag)
			continue
		}
		given := func(of string) bool { return of == flag }
		if !slices.Contains(relayFlagNames, flag) {
			if err := new(Config).checkSource(given, "xds://up"); err == nil || !strings.Contains(err.Error(), "--"+flag+" is about files") {
				t.Errorf("--%s: %v", flag, err)
			}
			continue
		}
		var stored Config
		stored.store.at.URL = "file:store"
		for arg, c := range map[string]*Config{"DIR is a directory": {}, "file:store is a store": &stored} {
			if err := c.checkSource(given, "DIR"); err == nil || err.Error() != "--"+flag+" needs a relay, and "+arg {
				t.Errorf("SAFE-14 --%s: %v", flag, err)
			}
		}
	}
}

// SAFE-6: a relay refuses secrets that it would send in plain text over the network.
func TestRelayRefusesExposedSecrets(t *testing.T) {
	for _, tt := range []struct {
		listen string
		allow  bool
		want   string
	}{
		{"127.0.0.1:0", false, ""},
		{"0.0.0.0:18000", true, ""},
		{"0.0.0.0:18000", false, `the secret in transport_socket.typed_config.common_tls_context.tls_certificates[0].private_key of CDS "a" would be sent over the network in plain text, from 0.0.0.0:18000: give --tls-cert, --tls-key and --client-ca, listen on this machine only, or allow it with --insecure-secrets`},
	} {
		c := Config{insecureSecrets: tt.allow}
		c.listening.addresses = []string{tt.listen}
		if err := c.listening.check(); err != nil {
			t.Fatal(err)
		}
		var none xdsclient.Flags
		up, err := none.Server("xds://up")
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := (&relaySource{services: services{types: envoy.Envoy(), exposed: c.exposed()}, upstream: up}).clientConfig()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := cfg.Check(keyed(t, "a", "hunter2Quokkas")); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.listen, got, tt.want)
		}
		if err := cfg.Check(keyed(t, "a", "")); err != nil {
			t.Error(err)
		}
		if err := cfg.Servers[0].Transport.Close(); err != nil {
			t.Error(err)
		}
	}
}

// busyRelay is a relay whose client checks a resource until release is called.
func busyRelay(t *testing.T) (r *relaySource, begin, release func()) {
	t.Helper()
	up := upstreamtest.New()
	free := make(chan struct{})
	c, err := client.New(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: up}}, Check: func(*xds.Resource) error { <-free; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	r = &relaySource{looks: disk.Reads{Wait: lookTime}, upstream: &xdsclient.Server{Text: "xds://up"}, client: c, source: relay.New(store.New(), c, relay.Options{})}
	r.log = slog.New(slog.DiscardHandler)
	return r, func() { up.Send(xds.Cluster, upstreamtest.Cluster(t, "a")) }, func() { close(free) }
}

// While the client of the upstream is busy, status has an earlier state, and a stop does not wait for the client.
func TestRelayWithBusyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin, release := busyRelay(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		r.run(ctx, &running, nil)
		synctest.Wait()
		if s := r.status(); s.Idle || s.Connected {
			t.Errorf("%+v", s)
		}
		begin()
		goroutines := 0
		for i := range 3 {
			start := time.Now()
			if s := r.status(); s.URL != "xds://up" || s.Idle || time.Since(start) > time.Second {
				t.Errorf("SAFE-14 status after %v: %+v", time.Since(start), s)
			}
			switch n := runtime.NumGoroutine(); {
			case i == 0:
				goroutines = n
			case n > goroutines:
				t.Error("SAFE-14 each status of a busy client leaves a goroutine")
			}
		}
		cancel()
		start := time.Now()
		running.Wait()
		if d := time.Since(start); d != xdsclient.StopTime {
			t.Errorf("SAFE-14 a stop during a check takes %v", d)
		}
		release()
		synctest.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		r, begin, release := busyRelay(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		r.run(ctx, &running, nil)
		synctest.Wait()
		begin()
		release()
		if s := r.status(); !s.Connected {
			t.Errorf("%+v", s)
		}
		cancel()
		start := time.Now()
		running.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("a stop takes %v", d)
		}
	})
}

// The limits for the upstream reach its client.
func TestRelayLimitsUpstream(t *testing.T) {
	var none xdsclient.Flags
	up, err := none.Server("xds://up")
	if err != nil {
		t.Fatal(err)
	}
	sv := services{types: envoy.Envoy(), store: store.New(), log: slog.New(slog.DiscardHandler), metrics: procmetrics.New(procmetrics.Options{})}
	r, err := newRelaySource(sv, up, stateFlags{}, &limitFlags{Limits: server.DefaultLimits(), upstream: xdsclient.Limits{All: 1 << 20, Response: 1 << 16}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.client.Close()
	if up.Response.Bytes != 1<<16 || !strings.Contains(up.Response.Hint, "--max-upstream-response") {
		t.Errorf("SAFE-14 a response: %+v", up.Response)
	}
	cfg, err := r.clientConfig()
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.Servers[0].Transport.Close()
	if cfg.Held.Bytes != 1<<20 || !strings.Contains(cfg.Held.Hint, "--max-upstream for more") {
		t.Errorf("SAFE-14 all resources: %+v", cfg.Held)
	}
	checks := bytes.Repeat([]byte{8<<3 | 2, 0}, 10_000) // health checks without content
	if err := cfg.Check(xds.NewResource(xds.Cluster, "a", append([]byte("\x0a\x01a"), checks...))); err == nil || !strings.Contains(err.Error(), "--max-upstream") {
		t.Errorf("SAFE-14 a resource with many messages: %v", err)
	}
}
