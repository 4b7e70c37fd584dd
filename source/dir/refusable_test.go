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
}
