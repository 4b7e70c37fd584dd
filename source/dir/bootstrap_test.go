package dir

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// Clusters in a bootstrap are not dangling, and resources that it refers to are not unused.
func TestBootstrapResourcesCount(t *testing.T) {
	const proxy = `{"name":"tcp","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy","stat_prefix":"t","cluster":"%"}}`
	listener := func(filter string) string {
		return `"name":"l","address":{"socket_address":{"address":"127.0.0.1","port_value":1}},"filter_chains":[{"filters":[` + filter + `]}]`
	}
	to := func(cluster string) string { return listener(strings.ReplaceAll(proxy, "%", cluster)) }
	sni := listener(`{"name":"sni","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster"}}`)
	b := newFixture(t, "a.yaml", "{"+clusterURL+", name: own}\n", "l.json", `{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener",`+to("kept")+`}`)
	const unused, missed = `nothing refers to CDS "own"`, `CDS "kept", which no file has`
	for name, tt := range map[string]struct {
		bootstraps []string
		want       []string
	}{
		"none":                                  {nil, []string{unused, missed}},
		"nothing relevant":                      {[]string{`{"node":{"id":"n"}}`}, []string{unused, missed}},
		"a cluster":                             {[]string{`{}`, `{"static_resources":{"clusters":[{"name":"kept"}]}}`}, []string{unused}},
		"a secret is not a cluster":             {[]string{`{"static_resources":{"secrets":[{"name":"kept"}]}}`}, []string{unused, missed}},
		"a listener":                            {[]string{`{"static_resources":{"listeners":[{` + to("own") + `}]}}`}, []string{missed}},
		"a listener with a subscribed resource": {[]string{`{"static_resources":{"listeners":[{` + sni + `}]}}`}, []string{missed}},
		"a runtime, which may be anything":      {[]string{`{"layered_runtime":{"layers":[{"name":"a","static_layer":{"x":1}}]}}`}, []string{unused, missed}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []proto.Message
			for _, json := range tt.bootstraps {
				m := envoyapi.Envoy().New("envoy.config.bootstrap.v3.Bootstrap").Interface()
				if err := (protojson.UnmarshalOptions{Resolver: envoyapi.Envoy()}).Unmarshal([]byte(json), m); err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
			}
			c := Check(b.dir, Options{Bootstraps: all})
			said := Errors(append(c.Errors, c.Warnings...)).Error()
			for _, want := range []string{unused, missed} {
				if is := strings.Contains(said, want); is != slices.Contains(tt.want, want) {
					t.Errorf("%q: %v\n%s", want, is, said)
				}
			}
		})
	}
}

// The bootstrap in the directory of a group counts for the nodes of that group, as the resources there do.
func TestBootstrapOfGroup(t *testing.T) {
	const kept, other = "static_resources: {clusters: [{name: kept}]}\n", "static_resources: {clusters: [{name: other}]}\n"
	route := func(cluster string) string { return inlineRoutes("cluster: "+cluster, "", "") }
	match := func(id string) string { return "match: {id: \"" + id + "\"}\n" }
	const refers = `LDS "l" refers to CDS "kept"`
	for name, tt := range map[string]struct {
		files         []string
		errs, warning string // parts of the problems; "": none
		bootstrap     string // the error of the bootstrap, with its group
	}{
		"its own group":                   {files: []string{"g/group.yaml", match("g-*"), "g/_bootstrap.yaml", kept, "g/l.yaml", route("kept")}},
		"an included group":               {files: []string{"g/group.yaml", match("g-*") + "include: [default]\n", "g/_bootstrap.yaml", kept, "l.yaml", route("kept")}},
		"a nested group of the same node": {files: []string{"g/group.yaml", match("g-*"), "g/n/group.yaml", match("g-1"), "g/n/l.yaml", route("kept"), "g/_bootstrap.yaml", kept}},
		"a nested group of other nodes": {
			files:   []string{"g/group.yaml", match("g-*"), "g/n/group.yaml", match("n-1"), "g/n/l.yaml", route("kept"), "g/_bootstrap.yaml", kept},
			warning: "XDS0201 g/n/l.yaml:6:10: "},
		"another group": {
			files:   []string{"g/group.yaml", match("g-*"), "g/_bootstrap.yaml", kept, "h/group.yaml", match("h-*"), "h/l.yaml", route("kept")},
			warning: "XDS0201 h/l.yaml:6:10: "},
		"another group with a bootstrap": {
			files: []string{"g/group.yaml", match("g-*"), "g/_bootstrap.yaml", kept, "h/group.yaml", match("h-*"), "h/_bootstrap.yaml", other, "h/l.yaml", route("kept")},
			errs:  "XDS0415 h/l.yaml:6:10: "},
		"the bootstrap of the root counts, too": {files: []string{"_bootstrap.yaml", kept, "g/group.yaml", match("g-*"), "g/_bootstrap.yaml", other, "g/l.yaml", route("kept")}},
		"a directory that is not a group": {
			files:   []string{"g/group.yaml", match("g-*"), "g/d/_bootstrap.yaml", kept, "g/l.yaml", route("kept")},
			warning: "XDS0201 g/l.yaml:6:10: "},
		"invalid YAML": {
			files:     []string{"g/group.yaml", match("g-*"), "g/_bootstrap.yaml", "node: {\n  id: [\n", "g/l.yaml", route("kept")},
			bootstrap: "g g/_bootstrap.yaml:"},
		"an unknown field": {
			files:     []string{"g/group.yaml", match("g-*"), "g/_bootstrap.yaml", "node: {}\nstatic_resource: {}\n", "g/l.yaml", route("kept")},
			bootstrap: "g g/_bootstrap.yaml:2:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, tt.files...)
			c := Check(b.dir, Options{ReadBootstraps: true})
			errs, warnings := problemsOf(b.dir, c)
			if strings.Contains(errs, refers) != (tt.errs != "") || !strings.Contains(errs, tt.errs) {
				t.Errorf("errors %q, want %q", errs, tt.errs)
			}
			if strings.Contains(warnings, refers) != (tt.warning != "") || !strings.Contains(warnings, tt.warning) {
				t.Errorf("warnings %q, want %q", warnings, tt.warning)
			}
			bootstrap := ""
			for _, p := range c.BootstrapErrors {
				bootstrap += p.Group + " " + strings.ReplaceAll(p.Error(), b.dir+"/", "")
			}
			if (bootstrap != "") != (tt.bootstrap != "") || !strings.HasPrefix(bootstrap, tt.bootstrap) {
				t.Errorf("errors of the bootstrap %q, want %q", bootstrap, tt.bootstrap)
			}
		})
	}
	t.Run("a resource that it refers to is used", func(t *testing.T) {
		const sink = "static_resources: {clusters: [{name: kept, transport_socket_matches: [{name: m, match: {}, transport_socket: {name: t, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {tls_certificate_sds_secret_configs: [{name: cert, sds_config: {ads: {}, resource_api_version: V3}}]}}}}]}]}\n"
		const secret = `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: cert, generic_secret: {secret: {inline_string: x}}}`
		b := newFixture(t, "g/group.yaml", match("g-*"), "g/s.yaml", secret, "g/c.yaml", clusters("c"), "g/l.yaml", route("c"))
		for bootstrap, used := range map[string]bool{kept: false, sink: true} {
			b.write("g/_bootstrap.yaml", bootstrap)
			if _, warnings := problemsOf(b.dir, Check(b.dir, Options{ReadBootstraps: true})); strings.Contains(warnings, `nothing refers to SDS "cert"`) == used {
				t.Errorf("used %v: %s", used, warnings)
			}
		}
	})
}

// A server reads bootstraps at each load.
func TestBootstrapOfGroupWhileServing(t *testing.T) {
	const kept = "static_resources: {clusters: [{name: kept}]}\n"
	route := func(cluster string) string { return inlineRoutes("cluster: "+cluster, "", "") }
	served := func(t *testing.T, files ...string) *fixture {
		b := newFixture(t, append([]string{"a.yaml", clusters("a"), "_bootstrap.yaml", "{}"}, files...)...)
		b.src = New(b.src.root, b.st, Options{Log: slog.New(slog.DiscardHandler), References: true, Validate: true, ReadBootstraps: true})
		if _, err := b.src.Load(); err != nil {
			t.Fatal(err)
		}
		return b
	}
	group := []string{"g/group.yaml", "match: {id: \"g-*\"}\n", "g/_bootstrap.yaml", kept, "g/l.yaml", route("kept")}
	t.Run("a new group with a bootstrap is loaded", func(t *testing.T) {
		b := served(t)
		b.write(group...)
		if _, err := b.src.Load(); err != nil {
			t.Fatal(err)
		}
		b.expectNode("g-1", "LDS l")
		if ref := (xds.Ref{Type: xds.Cluster, Name: "kept"}); !b.src.InBootstrap([]string{"g"}, ref) || b.src.InBootstrap([]string{"default"}, ref) {
			t.Error("the cluster counts for another group, or not for its own")
		}
	})
	t.Run("a removed cluster counts no more, and resources stay", func(t *testing.T) {
		b := served(t, group...)
		b.write("g/_bootstrap.yaml", "{}")
		if _, err := b.src.Load(); err == nil || !strings.Contains(err.Error(), `l.yaml:6:10: `) {
			t.Errorf("a route to a cluster that is gone: %v", err)
		}
		b.expectNode("g-1", "LDS l")
		b.write("g/_bootstrap.yaml", kept)
		if _, err := b.src.Load(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a removed bootstrap is unknown, and resources stay", func(t *testing.T) {
		b := newFixture(t, group...)
		b.src = New(b.src.root, b.st, Options{Log: slog.New(slog.DiscardHandler), References: true, Validate: true, ReadBootstraps: true, AllowEmpty: true})
		for _, want := range []string{"", requiredHint} {
			r, err := b.src.Load()
			if err != nil {
				t.Fatal(err)
			}
			b.expectNode("g-1", "LDS l")
			if got := Errors(r.Warnings).Error(); strings.Contains(got, requiredHint) != (want != "") {
				t.Errorf("warnings %q", got)
			}
			b.remove("g/_bootstrap.yaml")
		}
	})
	t.Run("a secret of a new bootstrap is known", func(t *testing.T) {
		const listener = `{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, transport_socket: {name: t, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {tls_certificate_sds_secret_configs: [{name: cert}]}}}}`
		b := served(t)
		b.write("g/group.yaml", "match: {id: \"g-*\"}\n", "g/c.yaml", listener)
		if _, err := b.src.Load(); err == nil || !strings.Contains(err.Error(), `secret "cert" has no sds_config`) {
			t.Fatal(err)
		}
		b.write("g/_bootstrap.yaml", "static_resources: {secrets: [{name: cert}]}\n")
		if _, err := b.src.Load(); err != nil {
			t.Fatal(err)
		}
		b.expectNode("g-1", "CDS c")
	})
	t.Run("SAFE-3 a new limit for regular expressions counts at the next load", func(t *testing.T) {
		b := served(t, "r.yaml", largeRegex)
		for _, tt := range []struct{ bootstrap, limit string }{
			{"layered_runtime: {layers: [{name: a, static_layer: {re2.max_program_size.error_level: 1000}}]}\n", ""},
			{"layered_runtime: {layers: [{name: a, static_layer: {re2.max_program_size.error_level: 200}}]}\n", "200"},
			{"layered_runtime: {layers: [{name: a, static_layer: {re2.max_program_size.error_level: 2000}}]}\n", ""},
			{"node: [\n", "100"}, // it may have any limit
		} {
			b.write("_bootstrap.yaml", tt.bootstrap)
			r, err := b.src.Load()
			got := Errors(r.Warnings).Error()
			if is := strings.Contains(got, "RE2 program"); err != nil || is != (tt.limit != "") || is && !strings.Contains(got, "the limit is "+tt.limit) {
				t.Errorf("%s: %v, %q, want the limit %q", tt.bootstrap, err, got, tt.limit)
			}
		}
	})
	t.Run("an invalid bootstrap is logged with its place", func(t *testing.T) {
		b := newFixture(t, append([]string{"a.yaml", clusters("a")}, group...)...)
		b.src = New(b.src.root, b.st, Options{References: true, ReadBootstraps: true})
		log := b.run()
		b.write("g/_bootstrap.yaml", "node: [\n")
		for late := time.After(10 * time.Second); ; {
			select {
			case line := <-log:
				if strings.Contains(line, "bootstrap not read") && strings.Contains(line, "g/_bootstrap.yaml:") {
					return
				}
			case <-late:
				t.Fatal("not logged")
			}
		}
	})
}

// largeRegex has a regular expression whose program has 304 instructions.
const largeRegex = `{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {safe_regex: {regex: "^/[0-9a-z-]{100}$"}}, direct_response: {status: 200}}]}]}`

// The results are those of Envoy 1.40.
func TestProgramSizeOfBootstrap(t *testing.T) {
	b := newFixture(t, "r.yaml", largeRegex)
	value := func(v string) string { return `{"re2.max_program_size.error_level":` + v + `}` }
	for _, tt := range []struct {
		name   string
		layers []string
		limit  string // in the warning; "": no warning
	}{
		{"no layer", nil, "100"},
		{"above", []string{value("1000")}, ""},
		{"below", []string{value("200")}, "200"},
		{"nothing is allowed", []string{value("0")}, "0"},
		{"a string", []string{value(`" 1000"`)}, ""},
		{"a fraction", []string{value("1000.5")}, ""},
		{"a large number", []string{value("1e15")}, ""},
		{"nested", []string{`{"re2":{"max_program_size":{"error_level":1000}}}`}, ""},
		{"partly nested", []string{`{"re2.max_program_size":{"error_level":1000}}`}, ""},
		{"a boolean", []string{value("true")}, "100"},
		{"a text", []string{value(`"x"`)}, "100"},
		{"a negative number", []string{value("-5")}, "100"},
		{"the last layer counts", []string{value("1000"), value("50")}, "50"},
		{"the last layer with the value counts", []string{value("1000"), `{"x":1}`}, ""},
		{"a text after a number", []string{value("1000"), value(`"x"`)}, "100"},
	} {
		t.Run("SAFE-3 "+tt.name, func(t *testing.T) {
			var layers []string
			for i, l := range tt.layers {
				layers = append(layers, fmt.Sprintf(`{"name":"%d","static_layer":%s}`, i, l))
			}
			bootstrap := bootstrapOf(t, `{"layered_runtime":{"layers":[`+strings.Join(layers, ",")+`]}}`)
			c := Check(b.dir, Options{Bootstraps: bootstrap, Validate: true})
			got := Errors(append(c.Errors, c.Warnings...)).Error()
			if is := strings.Contains(got, "RE2 program"); is != (tt.limit != "") || !strings.Contains(got, "the limit is "+tt.limit) && is {
				t.Error(got)
			}
			if strings.Contains(got, "a default Envoy refuses") != (tt.limit == "100") {
				t.Error("whose limit it is:", got)
			}
		})
	}
	both := append(bootstrapOf(t, `{"layered_runtime":{"layers":[{"name":"a","static_layer":`+value("1000")+`}]}}`), bootstrapOf(t, `{}`)...)
	for range 2 {
		if c := Check(b.dir, Options{Bootstraps: both, Validate: true}); !strings.Contains(Errors(c.Warnings).Error(), "the limit is 100") {
			t.Error("each Envoy must accept the resource:", c.Warnings)
		}
		slices.Reverse(both)
	}
	if c := CheckAll([]string{Stdin}, strings.NewReader(largeRegex), Options{Bootstraps: both[:1], Validate: true}); len(c.Warnings) > 0 || len(c.Loaded) != 1 {
		t.Error("the limit of the bootstrap counts for stdin, too:", c.Warnings)
	}
}

// The results are those of Envoy 1.40, for the value as a scalar of YAML.
func TestProgramSizeOfScalar(t *testing.T) {
	b := newFixture(t, "r.yaml", largeRegex)
	const none = "" // no warning: the limit is above 304
	for scalar, limit := range map[string]string{
		`200`: "200", `+200`: "200", `200.`: "200", `200.5`: "200", `2e2`: "200", `0xc8`: "200", `0x1.9p7`: "200", `0310`: "200", `0310.5`: none,
		`0x3e8`: none, `01750`: none, `1e15`: none, `4294967297`: "1", `9007199254740993`: "0", `18446744073709551616`: "0",
		`1_000`: "100", `0o310`: "100", `0b11001000`: "100", `-0xc8`: "100", `1e30`: "100", `true`: "100", `{}`: "100", `{numerator: 1000}`: "100",
		`!!str 200`: "200", `!!int "200"`: "200",

		`"200"`: "200", `"+200"`: "200", `"00200"`: "200", `"200.5"`: "200", `"500."`: none, `".5e3"`: none, `"2e2"`: "200", `"2E+2"`: "200",
		`" 200 "`: "200", `"\v200\f\r"`: "200", `"1000\n"`: none, `"1000\u00a0"`: "100", `"200\0"`: "100",
		`"0310"`: none, `"0xc8"`: "200", `"0XC8"`: "200", `" 0xc8 "`: "200", `"+0xc8"`: "200", `"0x0c8"`: "200", `"0xc8.8"`: "200", `"0xc8p0"`: "200",
		`"0x1.9p7"`: "200", `"0x.c8p8"`: "200", `"0xc8e1"`: none, `"0x3e8"`: none, `"0x10000000000000001"`: "0", `"0xFFFFFFFFFFFFF800"`: none,
		`"-0xc8"`: "100", `"0x"`: "100", `"0xg"`: "100", `"0x1_0"`: "100", `"0xc8p"`: "100", `"0xp0"`: "100", `"0x.p0"`: "100", `"0x c8"`: "100",
		`"0o310"`: "100", `"0b11001000"`: "100", `"1_000"`: "100", `"+-1000"`: "100", `"++200"`: "100", `"1e"`: "100", `"200f"`: "100", `"200%"`: "100",
		`"4294967297"`: "1", `"4294967300.5"`: "4", `"18446744073709551615"`: "0", `"18446744073709551616"`: "0", `"1e30"`: "100",
		`"1e-400"`: "0", `"1e400"`: "100", `"-0"`: "0", `"inf"`: "100", `"infinity"`: "100", `"nan"`: "100", `"nan(200)"`: "100", `"true"`: "100", `""`: "100",
	} {
		t.Run("SAFE-3 "+scalar, func(t *testing.T) {
			b.write(BootstrapFile, "layered_runtime: {layers: [{name: l, static_layer: {re2.max_program_size.error_level: "+scalar+"}}]}\n")
			c := Check(b.dir, Options{ReadBootstraps: true})
			if len(c.BootstrapErrors) > 0 {
				t.Fatal(c.BootstrapErrors)
			}
			_, got, _ := strings.Cut(Errors(c.Warnings).Error(), "the limit is ")
			if got, _, _ = strings.Cut(got, " "); got != limit {
				t.Errorf("limit %q, want %q", got, limit)
			}
		})
	}
}

// The limit of the bootstrap of a group counts for the files of that group, in place of that of the root.
func TestProgramSizeOfGroup(t *testing.T) {
	limit := func(n int) string {
		return fmt.Sprintf("layered_runtime: {layers: [{name: l, static_layer: {re2.max_program_size.error_level: %d}}]}\n", n)
	}
	const g, h, n = "match: {id: \"g-*\"}\n", "match: {id: \"h-*\"}\n", "match: {id: \"n-*\"}\n"
	for name, tt := range map[string]struct {
		files []string
		want  string // the limits in the warnings, by file
	}{
		"without a bootstrap":             {[]string{"g/group.yaml", g, "g/r.yaml", largeRegex}, "g/r.yaml 100"},
		"its own":                         {[]string{"g/group.yaml", g, "g/_bootstrap.yaml", limit(1000), "g/d/r.yaml", largeRegex}, ""},
		"its own, not that of the root":   {[]string{"_bootstrap.yaml", limit(1000), "g/group.yaml", g, "g/_bootstrap.yaml", limit(200), "g/r.yaml", largeRegex}, "g/r.yaml 200"},
		"its own without the value":       {[]string{"_bootstrap.yaml", limit(1000), "g/group.yaml", g, "g/_bootstrap.yaml", "{}\n", "g/r.yaml", largeRegex}, "g/r.yaml 100"},
		"its own, which cannot be read":   {[]string{"_bootstrap.yaml", limit(1000), "g/group.yaml", g, "g/_bootstrap.yaml", "node: [\n", "g/r.yaml", largeRegex}, "g/r.yaml 100"},
		"that of the root":                {[]string{"_bootstrap.yaml", limit(1000), "g/group.yaml", g, "g/r.yaml", largeRegex, "h/group.yaml", h, "h/_bootstrap.yaml", limit(50)}, ""},
		"not that of another group":       {[]string{"g/group.yaml", g, "g/_bootstrap.yaml", limit(1000), "h/group.yaml", h, "h/r.yaml", largeRegex, "r.yaml", largeRegex}, "h/r.yaml 100, r.yaml 100"},
		"not that of the directory above": {[]string{"g/group.yaml", g, "g/_bootstrap.yaml", limit(1000), "g/n/group.yaml", n, "g/n/r.yaml", largeRegex}, "g/n/r.yaml 100"},
	} {
		t.Run("SAFE-3 "+name, func(t *testing.T) {
			b := newFixture(t, tt.files...)
			expect := func(warnings []findings.Problem) {
				t.Helper()
				var got []string
				for _, p := range warnings {
					if _, of, ok := strings.Cut(p.Message, "the limit is "); ok {
						got = append(got, strings.TrimPrefix(p.File, b.dir+"/")+" "+of)
					}
				}
				slices.Sort(got)
				if is := strings.Join(got, ", "); is != tt.want {
					t.Errorf("%q, want %q", is, tt.want)
				}
			}
			expect(Check(b.dir, Options{ReadBootstraps: true}).Warnings)
			b.src = New(b.src.root, b.st, Options{Log: slog.New(slog.DiscardHandler), Validate: true, ReadBootstraps: true})
			r, err := b.src.Load()
			if err != nil {
				t.Fatal(err)
			}
			expect(r.Warnings)
		})
	}
	t.Run("SAFE-3 while it serves", func(t *testing.T) {
		b := newFixture(t, "g/group.yaml", g, "g/_bootstrap.yaml", limit(1000), "g/c.yaml", clusters("c"), "g/d/r.yaml", largeRegex)
		b.src = New(b.src.root, b.st, Options{Log: slog.New(slog.DiscardHandler), Validate: true, ReadBootstraps: true})
		loads := func(limit string) {
			t.Helper()
			r, err := b.src.Load()
			if err != nil {
				t.Fatal(err)
			}
			if got := Errors(r.Warnings).Error(); strings.Contains(got, "the limit is") != (limit != "") || !strings.Contains(got, limit) {
				t.Errorf("%q, want %q", got, limit)
			}
		}
		loads("")
		b.write("g/_bootstrap.yaml", limit(200))
		loads("the limit is 200")
		b.write("g/_bootstrap.yaml", limit(1000))
		loads("")
		b.write("g/d/group.yaml", n)
		loads("the limit is 100")
		b.write("g/d/_bootstrap.yaml", limit(1000))
		loads("")
	})
}
