package dir

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/findings"
)

const refusedLine = `level=WARN msg="refusal expected: clients of Envoy will refuse a served resource" `

// refusals waits for n lines about findings and returns them, without the directory.
func (b *fixture) refusals(log lines, n int) (got []string) {
	b.Helper()
	for late := time.After(10 * time.Second); len(got) < n; {
		select {
		case line := <-log:
			if strings.Contains(line, "refusal expected") {
				got = append(got, strings.ReplaceAll(line, b.src.root+"/", ""))
			}
		case <-late:
			b.Fatalf("%d lines, want %d: %q", len(got), n, got)
		}
	}
	return got
}

func noTimeout(names ...string) string {
	var s strings.Builder
	for _, name := range names {
		fmt.Fprintf(&s, "---\n%s\nname: %s\nconnect_timeout: 0s\n", clusterURL, name)
	}
	return s.String()
}

func TestServedResourcesThatEnvoyRefuses(t *testing.T) {
	t.Run("SAFE-3 a load is served, and warns of each finding once per content", func(t *testing.T) {
		b := newFixture(t, "a.yaml", noTimeout("a"), "good.yaml", clusters("g"))
		want := b.follow()
		log := b.run()
		if got := b.refusals(log, 1); got[0] != refusedLine+`code=XDS0301 problem="a.yaml:4:18: connect_timeout: must be more than 0s, not 0s"` {
			t.Error(got)
		}
		want("CDS a g")
		// The next finding is the only new one, although the first one has another place now.
		b.write("a.yaml", "# a comment\n"+noTimeout("a", "b"))
		if got := b.refusals(log, 1); !strings.Contains(got[0], `a.yaml:9:18: connect_timeout`) {
			t.Error(got)
		}
		b.write("l.yaml", tcpListener("l", "80")+"---\n"+tcpListener("m", "80"))
		if got := b.refusals(log, 1); !strings.Contains(got[0], `code=XDS0403 problem="l.yaml:8:27: address.socket_address: LDS \"m\" listens on TCP 0.0.0.0:80, and so does \"l\" at l.yaml:1:1"`) {
			t.Error(got)
		}
		b.write("l.yaml", "# a comment\n"+tcpListener("l", "80")+"---\n"+strings.Replace(tcpListener("m", "80"), "stat_prefix: s", `stat_prefix: ""`, 1))
		if got := b.refusals(log, 1); !strings.Contains(got[0], "code=XDS0301") || !strings.Contains(got[0], "stat_prefix") {
			t.Error(got)
		}
	})
	t.Run("SAFE-3 a load logs 20 findings and the number of the others", func(t *testing.T) {
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("c%02d", i))
		}
		b := newFixture(t, "a.yaml", noTimeout(names...))
		got := b.refusals(b.run(), maxRefusableLines+1)
		for i, line := range got[:maxRefusableLines] {
			if !strings.Contains(line, fmt.Sprintf("a.yaml:%d:18: ", 4+4*i)) {
				t.Errorf("line %d: %s", i, line)
			}
		}
		if last := got[maxRefusableLines]; !strings.Contains(last, `msg="refusal expected: more findings" more=30 hint="chancery check `) {
			t.Error(last)
		}
	})
	t.Run("SAFE-3 with Validate the load is refused instead", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		b.src = New(b.src.root, b.st, Options{Validate: true})
		if _, err := b.src.Load(); err != nil {
			t.Fatal(err)
		}
		b.write("a.yaml", noTimeout("a"))
		if _, err := b.src.Load(); err == nil || !strings.Contains(err.Error(), "connect_timeout") {
			t.Error(err)
		}
		if got := b.content(); got != "CDS a" {
			t.Error(got)
		}
	})
	t.Run("SAFE-3 each rule of Envoy that check knows about one resource", func(t *testing.T) {
		files := []string{
			"route.yaml", `{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: a, domains: ["*"]}, {name: b, domains: ["*"]}]}`,
			"listener.yaml", "{" + listenerURL + ", name: none}",
		}
		b := newFixture(t, files...)
		got := strings.Join(b.refusals(b.run(), 2), "\n")
		for _, code := range []findings.Code{findings.DuplicateDomain, findings.NoFilterChain} {
			if !strings.Contains(got, "code="+string(code)+" ") {
				t.Errorf("no %s: %s", code, got)
			}
		}
	})
	const static = `{"static_resources": {"clusters": [{"name": "kept"}]}, "dynamic_resources": {"cds_config": {"ads": {}}}}`
	route := func(cluster string) string { return inlineRoutes("cluster: "+cluster, "", "") }
	t.Run("SAFE-3 a route inside a listener to an unknown cluster, with a bootstrap", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "l.yaml", route("kept"))
		b.src = New(b.src.root, b.st, Options{References: true, Bootstraps: bootstrapOf(t, static)})
		log := b.run()
		b.write("l.yaml", route("missing"))
		if got := b.refusals(log, 1); got[0] != refusedLine+`code=XDS0415 problem="l.yaml:6:10: filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].route.cluster: LDS \"l\" refers to CDS \"missing\", which no file has (add the cluster; Envoy does not look for it with validate_clusters: false)"` {
			t.Error(got)
		}
		if got := fmt.Sprint(b.src.Summary().Warnings); strings.Contains(got, "missing") {
			t.Errorf("reported twice: %s", got)
		}
		b.write("a.yaml", clusters("b")) // the listener is reported once
		b.write("l.yaml", route("other"))
		if got := b.refusals(log, 1); !strings.Contains(got[0], `CDS \"other\"`) {
			t.Error(got)
		}
	})
	t.Run("SAFE-3 with Validate, a route inside a listener to an unknown cluster is refused", func(t *testing.T) {
		for _, known := range []bool{false, true} {
			b := newFixture(t, "a.yaml", clusters("a"), "l.yaml", route("a"))
			o := Options{References: true, Validate: true}
			if known {
				o.Bootstraps = bootstrapOf(t, static)
			}
			b.src = New(b.src.root, b.st, o)
			if _, err := b.src.Load(); err != nil {
				t.Fatal(err)
			}
			b.write("l.yaml", route("missing"))
			if _, err := b.src.Load(); known != (err != nil) || known && !strings.Contains(err.Error(), `l.yaml:6:10: `) {
				t.Errorf("bootstrap known %v: %v", known, err)
			}
			b.write("l.yaml", route("kept"))
			if _, err := b.src.Load(); err != nil {
				t.Errorf("bootstrap known %v, a cluster of it: %v", known, err)
			}
		}
	})
	t.Run("SAFE-3 with Validate, only the group with the route is rejected", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "g/"+GroupFile, "match: {cluster: g}\non_error: alone\n", "g/l.yaml", route("kept"))
		b.src = New(b.src.root, b.st, Options{Validate: true, Bootstraps: bootstrapOf(t, static)})
		if _, err := b.src.Load(); err != nil {
			t.Fatal(err)
		}
		b.write("g/l.yaml", route("missing"))
		b.write("a.yaml", clusters("b"))
		for range 2 {
			r, err := b.src.Load()
			if err != nil || len(r.Rejected) != 1 || !strings.Contains(r.Rejected.Error(), `l.yaml:6:10: `) {
				t.Errorf("%v, rejected %v", err, r.Rejected)
			}
		}
		if got := b.content(); !strings.Contains(got, "CDS b") {
			t.Error(got)
		}
	})
}
