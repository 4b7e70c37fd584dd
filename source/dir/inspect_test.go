package dir

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/store"
)

// aPair returns a certificate that expires at a time, and its key.
func aPair(t *testing.T, ends time.Time) (cert, key string) {
	t.Helper()
	p := tlstest.NewAuthority(t, "ca").IssueUntil(ends, "a")
	return string(p.Cert), string(p.Key)
}

func tlsSecret(name, cert, key string) string {
	return fmt.Sprintf("\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: %s\ntls_certificate:\n  certificate_chain: {inline_string: %q}\n  private_key: {inline_string: %q}\n", name, cert, key)
}

func TestCertificateProblems(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	gone, soon, late := now.Add(-time.Hour), now.Add(29*24*time.Hour), now.Add(31*24*time.Hour)
	cert, key := aPair(t, soon)
	old, oldKey := aPair(t, gone)
	fine, fineKey := aPair(t, late)
	say := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	for _, tt := range []struct {
		name, content, want string
	}{
		{"SAFE-11 ends soon", tlsSecret("s", cert, key), "SDS |\na.yaml:1:1: warning: SDS \"s\": the certificate in tls_certificate expires at " + say(soon) + " (clients refuse an expired certificate)\n"},
		{"SAFE-11 has ended", tlsSecret("s", old, oldKey), "SDS |\na.yaml:1:1: warning: SDS \"s\": the certificate in tls_certificate expired at " + say(gone) + " (clients refuse an expired certificate)\n"},
		{"SAFE-11 ends late", tlsSecret("s", fine, fineKey), "SDS |\n"},
		{"SAFE-11 another's key", tlsSecret("s", cert, oldKey), "a.yaml:4:3: tls_certificate: private_key is not the key of the certificate\n"},
		{"SAFE-11 no certificate", tlsSecret("s", key, key), "a.yaml:4:3: tls_certificate: certificate_chain has no certificate in PEM\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newFixture(t, "a.yaml", tt.content).findings()
			if got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}

	// The expiry is that of served resources, including restored ones, and the warning is logged once.
	b := newFixture(t, "a.yaml", tlsSecret("fine", fine, fineKey), "b.yaml", tlsSecret("soon", cert, key))
	var kept lastgood.Config
	s := New(b.dir, store.New(), Options{Keep: func(c lastgood.Config) { kept = c }})
	if at := s.FirstExpiry(); !at.IsZero() {
		t.Error("before the first load:", at)
	}
	r, err := s.Load()
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Message, say(soon)) {
		t.Error(r.Warnings, err)
	}
	if at := s.FirstExpiry(); !at.Equal(soon) {
		t.Error(at, "want", soon)
	}
	for i, want := range []struct {
		name string
		ends time.Time
	}{{"soon", soon}, {"fine", late}} {
		if all := s.Certificates(); len(all) != 2 || all[i].Name != want.name || !all[i].Ends.Equal(want.ends) || all[i].Path != "tls_certificate" || all[i].Group != "default" {
			t.Errorf("%+v, want %s", all, want.name)
		}
	}
	again := New(b.dir, store.New(), Options{})
	if err := again.Restore(kept); err != nil || !again.FirstExpiry().Equal(soon) {
		t.Error(err, again.FirstExpiry())
	}
	b.remove("b.yaml")
	if _, err := s.Load(); err != nil || !s.FirstExpiry().Equal(late) {
		t.Error(err, s.FirstExpiry())
	}
	b.write("a.yaml", clusters("c"))
	if _, err := s.Load(); err != nil || !s.FirstExpiry().IsZero() {
		t.Error(err, s.FirstExpiry())
	}
}

func TestV2Resources(t *testing.T) {
	b := newFixture(t, "a.yaml", `"@type": type.googleapis.com/envoy.api.v2.Cluster`+"\nname: c\n")
	want := `a.yaml:1:1: CDSv2 "c" is of the v2 API, which Envoy no longer supports: envoy.api.v2.Cluster (Options.V2 serves it as it is)`
	if got := b.try(); got != want {
		t.Errorf("TYP-6 got\n%swant\n%s", got, want)
	}
	b.src = New(b.dir, b.st, Options{V2: true})
	if _, err := b.src.Load(); err != nil {
		t.Error(err)
	}
}

// A v2 message is found at any depth of a resource.
func TestNestedV2Messages(t *testing.T) {
	const hcm = "type.googleapis.com/envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
	const hint = ": envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager (Options.V2 serves it as it is)"
	const ext = "\"@type\": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\nname: e\n"
	for _, tt := range []struct{ name, content, want string }{
		{"TYP-6 in a listener", "\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\nname: l\nfilter_chains: [{}, {filters: [{name: h, typed_config: {\"@type\": " + hcm + "}}]}]\n",
			`a.yaml:1:1: LDS "l" has in filter_chains[1].filters[0].typed_config a message of the v2 API, which Envoy no longer supports` + hint},
		{"TYP-6 in an extension", ext + "typed_config: {\"@type\": " + hcm + "}\n",
			`a.yaml:1:1: ECDS "e" has in typed_config a message of the v2 API, which Envoy no longer supports` + hint},
		{"TYP-6 in a TypedStruct", ext + "typed_config: {\"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: " + hcm + ", value: {}}\n",
			`a.yaml:1:1: ECDS "e" has in typed_config.value a message of the v2 API, which Envoy no longer supports` + hint},
		{"TYP-6 in the JSON of one", ext + "typed_config: {\"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: x/envoy.config.listener.v3.Filter, value: {typed_config: {\"@type\": " + hcm + "}}}\n",
			`a.yaml:1:1: ECDS "e" has in typed_config.value.typed_config a message of the v2 API, which Envoy no longer supports` + hint},
		{"TYP-6 a TypedStruct in the JSON of one", ext + "typed_config: {\"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: x/xds.type.v3.TypedStruct, value: {type_url: " + hcm + "}}\n",
			`a.yaml:1:1: ECDS "e" has in typed_config.value a message of the v2 API, which Envoy no longer supports` + hint},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newFixture(t, "a.yaml", tt.content)
			if got := b.try(); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			b.src = New(b.dir, b.st, Options{V2: true})
			if _, err := b.src.Load(); err != nil {
				t.Error(err)
			}
		})
	}
}

// No file may be slow to load, although each Any contains the Anys below it.
func TestNestedAnysAreFast(t *testing.T) {
	nested := func(n int) []byte {
		a := &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.core.v3.Locality"}
		for range n {
			b, err := proto.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			a = &anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Any", Value: b}
		}
		e, err := anypb.New(&corev3.TypedExtensionConfig{Name: "e", TypedConfig: a})
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{e}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const ext = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	text := func(n int) string {
		return "resources { [" + ext + "] { name: \"e\" typed_config {" + strings.Repeat("[type.googleapis.com/google.protobuf.Any] {", n) + strings.Repeat("}", n) + "} } }"
	}
	flow := func(n int) string {
		return `{"@type": ` + ext + `, name: e, typed_config: ` + strings.Repeat(`{"@type": type.googleapis.com/google.protobuf.Any, value: `, n) +
			`{"@type": type.googleapis.com/envoy.config.core.v3.Locality}` + strings.Repeat("}", n) + "}"
	}
	for _, tt := range []struct{ name, file, content, want string }{
		{"few", "a.pb", string(nested(5)), "ECDS |\n"},
		{"few, in text", "a.txtpb", text(5), "ECDS |\n"},
		{"few, in YAML", "a.yaml", flow(5), "ECDS |\n"},
		{"SAFE-9 many", "a.pb", string(nested(5000)), "a.pb: resources[0].typed_config: google.protobuf.Any nested more than 64 deep\n"},
		{"SAFE-9 many, in text", "a.txtpb", text(150), "a.txtpb: resources[0].typed_config: google.protobuf.Any nested more than 64 deep\n"},
		{"SAFE-9 very many, in text", "a.txtpb", text(5000), "a.txtpb: nested more than 200 deep\n"},
		{"SAFE-9 many, in YAML", "a.yaml", flow(66), "a.yaml:1:3809: typed_config" + strings.Repeat(".value", 8) + "…: google.protobuf.Any nested more than 64 deep\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := newFixture(t, tt.file, tt.content).findings(); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// Secrets are found in restored resources, as in loaded ones.
func TestRestoreFindsSecrets(t *testing.T) {
	b := newFixture(t, "a.yaml", "\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: s\ngeneric_secret: {secret: {inline_string: pw}}\n", "c.yaml", clusters("c"))
	var kept lastgood.Config
	seen := map[string]string{}
	o := Options{Keep: func(c lastgood.Config) { kept = c }, Review: func(all []Loaded) ([]Loaded, error) {
		for _, l := range all {
			seen[l.Name] = l.Secret
		}
		return nil, nil
	}}
	want := "map[c: s:generic_secret.secret]"
	if _, err := New(b.dir, store.New(), o).Load(); err != nil || fmt.Sprint(seen) != want {
		t.Error("SAFE-11", seen, err)
	}
	for _, c := range kept.Types {
		if r := c.Resources[0]; r.Secret != (r.Name == "s") {
			t.Error("SAFE-6 the stored resource is not marked as secret:", r.Name, r.Secret)
		}
	}
	clear(seen)
	if err := New(b.dir, store.New(), o).Restore(kept); err != nil || fmt.Sprint(seen) != want {
		t.Error("SAFE-11 restored:", seen, err)
	}
}
