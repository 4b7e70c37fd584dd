package dir

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// edge returns a listener with a key that Envoy refuses and quotes in its error.
func edge(name, key string) string {
	return `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: ` + name + `
filter_chains:
- transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/xds.type.v3.TypedStruct
      type_url: type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
      value: {common_tls_context: {tls_certificates: [{private_key: {inline_string: [` + key + `]}}]}}
`
}

// refused returns the error of Envoy 1.40 for it.
func refused(key string) string {
	return `Error adding/updating listener(s) edge: Unable to parse JSON as proto (INVALID_ARGUMENT: invalid JSON in ` +
		`envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext @ common_tls_context.tls_certificates[0].private_key.inline_string: string, ` +
		`near 1:76 (offset 75): unexpected character: '['; expected '"'): {"common_tls_context":{"tls_certificates":[{"private_key":{"inline_string":["` + key + `"]}}]}}`
}

func TestRedactedHidesSecrets(t *testing.T) {
	b := newFixture(t, "a.yaml", edge("edge", canary))
	shown := func(key string) string {
		t.Helper()
		text, ok := b.src.Redacted(xds.Listener, refused(key))
		if !ok {
			t.Error("SAFE-6 withheld")
		}
		return text
	}
	if got := shown(canary); got != refused(canary) {
		t.Error("nothing is served yet:", got)
	}
	load := func() {
		t.Helper()
		if _, err := b.src.Load(); err != nil {
			t.Fatal(err)
		}
	}
	load()
	if got := shown(canary); got != refused("…") {
		t.Error("SAFE-6", got)
	}
	if got, ok := b.src.Redacted(xds.Cluster, refused(canary)); got != refused(canary) || !ok {
		t.Error("another type:", got)
	}
	// A client may refuse what was served a moment ago.
	b.write("a.yaml", edge("edge", "another-Key"))
	load()
	if got := shown(canary) + shown("another-Key"); got != refused("…")+refused("…") {
		t.Error("SAFE-6", got)
	}
	b.remove("a.yaml")
	b.write("b.yaml", clusters("c"))
	load()
	if got := shown(canary) + shown("another-Key"); got != refused("…")+refused("…") {
		t.Error("SAFE-6", got)
	}
	// A removed resource that comes back is served again.
	b.write("a.yaml", edge("edge", canary))
	load()
	if got := shown(canary); got != refused("…") {
		t.Error("SAFE-6", got)
	}
}

// Secrets of restored resources are hidden, too.
func TestRedactedHidesRestoredSecrets(t *testing.T) {
	b := newFixture(t, "a.yaml", edge("edge", canary))
	var kept lastgood.Config
	if _, err := New(b.dir, store.New(), Options{Keep: func(c lastgood.Config) { kept = c }}).Load(); err != nil {
		t.Fatal(err)
	}
	if err := b.src.Restore(kept); err != nil {
		t.Fatal(err)
	}
	if got, ok := b.src.Redacted(xds.Listener, refused(canary)); got != refused("…") || !ok {
		t.Error("SAFE-6", got)
	}
}

func TestSecretHoldersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(names ...string) groupContent {
			w := groupContent{types: map[string]*typeContent{}}
			for _, name := range names {
				_ = w.add(Loaded{Resource: xds.NewResource(xds.Cluster, name, nil), Secret: "x"})
			}
			return w
		}
		first := of("a", "b")
		h := secretHolders{}.after(time.Now(), first)
		one := h[xds.Cluster.URL][0]
		if h = h.after(time.Now(), first); len(h[xds.Cluster.URL]) != 2 || h[xds.Cluster.URL][0] != one && h[xds.Cluster.URL][1] != one {
			t.Error("the unchanged resource was searched again")
		}
		h = h.after(time.Now(), of("a"))
		time.Sleep(rememberTime)
		if h = h.after(time.Now(), of("a")); len(h[xds.Cluster.URL]) != 4 { // the last two versions of a, and the removed resources
			t.Error(len(h[xds.Cluster.URL]))
		}
		time.Sleep(time.Nanosecond)
		if h = h.after(time.Now(), groupContent{}); len(h[xds.Cluster.URL]) != 2 {
			t.Error("SAFE-6", len(h[xds.Cluster.URL]))
		}
		var names []string
		for range 2 * maxOldHolders {
			names = append(names, strings.Repeat("x", len(names)+1))
		}
		if h = h.after(time.Now(), of(names...)).after(time.Now(), groupContent{}); len(h[xds.Cluster.URL]) != maxOldHolders {
			t.Error("SAFE-9", len(h[xds.Cluster.URL]))
		}
	})
	// The secrets of an undecodable resource are unknown, so no text may be shown.
	broken := xds.NewResource(xds.Cluster, "a", []byte("\xff"))
	s := New("", store.New(), Options{})
	s.holders.Store(&secretHolders{xds.Cluster.URL: {{body: broken}}})
	if text, ok := s.Redacted(xds.Cluster, "text"); ok || text != "" {
		t.Error("SAFE-6", text)
	}
}
