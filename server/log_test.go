package server

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestPresentable(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		typ              *xds.Type
	}{
		{name: "plain", text: "Only a single wildcard domain is permitted in route rt", want: "Only a single wildcard domain is permitted in route rt"},
		{name: "secret", typ: xds.Secret, text: "bad key MIIE", want: withheld},
		{name: "secret, empty", typ: xds.Secret},
		{name: "dump of many lines",
			text: "goo.gle/debugonly    \nname: \"r\"\nvirtual_hosts {\n  name: \"v\"\n}\n: Proto constraint validation failed (RouteConfigurationValidationError.X: value)",
			want: "… : Proto constraint validation failed (RouteConfigurationValidationError.X: value)"},
		{name: "dump in the middle",
			text: "Error adding/updating listener(s) ingress: goo.gle/debugproto  \nrds {\n  password: \"pw\"\n}\n: Didn't find a registered implementation",
			want: "Error adding/updating listener(s) ingress: … : Didn't find a registered implementation"},
		{name: "dump of one line", text: `goo.gle/debugstr  name: "x" key: "pw": Proto constraint validation failed (E)`, want: "… : Proto constraint validation failed (E)"},
		{name: "cut within the dump", text: "Error: goo.gle/debugonly  \nname: \"x\"\nkey: \"pw", want: "Error: …"},
		{name: "old Envoy, no marker", text: `failed (E): private_key { inline_string: "pw \" pw" } password { inline_bytes: "pw`, want: `failed (E): private_key { inline_string: "…" } password { inline_bytes: "…"`},
		{name: "JSON", text: `{"inlineString": "pw", "inline_bytes":"pw"}`, want: `{"inlineString": "…", "inline_bytes":"…"}`},
		{name: "JSON, a list", text: `"a": {"inline_string": ["pw", "pw"], name: "edge"}`, want: `"a": {"inline_string": "…", name: "edge"}`},
		{name: "JSON, a list that is cut", text: `"inline_string":["pw", "p`, want: `"inline_string":"…"`},
		{name: "in quotes", text: `it has password=\"pw\"`, want: `it has password="…"`},
		{name: "an assignment", text: `it has password = "pw", name="edge"`, want: `it has password = "…", name="edge"`},
		{name: "PEM", text: "cannot load -----BEGIN PRIVATE KEY-----\npw", want: "cannot load …"},
	} {
		t.Run("SAFE-6 "+c.name, func(t *testing.T) {
			typ := c.typ
			if typ == nil {
				typ = xds.Listener
			}
			if got := presentable(typ, c.text); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for n := range 5 {
		s := strings.Repeat("x", maxLogged-n) + strings.Repeat("ä", 10)
		if got := clip(s); len(got) > maxLogged+len("…") || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d: %d bytes, %q", n, len(got), got[maxLogged-6:])
		}
	}
}

func TestLog(t *testing.T) {
	within(t, "SOTW-5 SAFE-6 a NACK is a line", func(t *testing.T) {
		w := serve(t)
		for _, typ := range []*xds.Type{xds.Cluster, xds.Secret} {
			w.set(typ, res("a", "1"))
		}
		c := w.sotw(t, w.dial(t))
		for _, typ := range []*xds.Type{xds.Cluster, xds.Secret} {
			c.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: []string{"a"}, Node: &corev3.Node{Id: "the-node"}})
			r := c.want()
			c.send(nack(r, "first\n   cause "+strings.Repeat("long ", 1000)+"and the last", "a"))
			synctest.Wait()
			log := w.log.String()
			if typ == xds.Secret {
				if strings.Count(log, "\n") != 2 || !strings.Contains(log, "(withheld, because") || strings.Count(log, "first cause") != 1 {
					t.Error(log)
				}
				continue
			}
			if strings.Count(log, "\n") != 1 || !strings.Contains(log, "level=WARN") || !strings.Contains(log, "node=the-node type=CDS resources=[a] at=[] version="+r.VersionInfo) ||
				!strings.Contains(log, "first cause long") || !strings.Contains(log, `long and the last"`) || len(log) > 1500 {
				t.Error(log)
			}
		}
	})
	within(t, "SAFE-6 NACKs with the same reason are counted", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		for i := range 5 {
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: []string{"a"}, Node: &corev3.Node{Id: fmt.Sprint("node-", i)}})
			c.send(nack(c.want(), fmt.Sprint("no good, says ", i), "a"))
			synctest.Wait()
		}
		if log := w.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "node=node-0") {
			t.Error(log)
		}
		time.Sleep(dedup.Within)
		synctest.Wait()
		if log := w.log.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "node=node-4") || !strings.Contains(log, "repeated=4") {
			t.Error(log)
		}
		time.Sleep(10 * dedup.Within)
		synctest.Wait()
		if log := w.log.String(); strings.Count(log, "\n") != 2 {
			t.Error(log)
		}
	})
	within(t, "ADS-3 ADS-6 going on without an answer is logged", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("x", "1"), res("y", "1"))
		w.set(xds.Route, res("r", "1"))
		c := w.sotw(t, w.dial(t))
		for _, typ := range []*xds.Type{xds.Cluster, xds.Route} {
			c.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: map[*xds.Type][]string{xds.Route: {"r"}}[typ], Node: &corev3.Node{Id: "the-node"}})
			c.send(ack(c.want(), map[*xds.Type][]string{xds.Route: {"r"}}[typ]...))
		}
		w.set(xds.Route, res("r", "2"))
		c.want() // which is not answered
		w.source.update(xds.Cluster, nil, "x", "y")
		time.Sleep(16 * time.Second)
		synctest.Wait()
		log := w.log.String()
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "level=WARN") || !strings.Contains(log, "node=the-node unanswered=RDS type=CDS name=x") {
			t.Error(log)
		}
		time.Sleep(dedup.Within)
		synctest.Wait()
		if log := w.log.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "repeated=1") {
			t.Error(log)
		}
	})
	within(t, "an ACK is a line of level DEBUG", func(t *testing.T) {
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
			var book logbook
			w := serve(t, book.at(level))
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			c.send(ack(c.want()))
			synctest.Wait()
			if got := strings.Contains(book.String(), "accepted"); got != (level == slog.LevelDebug) {
				t.Errorf("at %v: %s", level, &book)
			}
		}
	})
	within(t, "SAFE-4 a response above 4 MiB is warned of once per type", func(t *testing.T) {
		w := serve(t)
		c := w.sotw(t, w.dial(t))
		for i := range 3 {
			w.set(xds.Cluster, res("a", strings.Repeat("x", 5<<20)+fmt.Sprint(i)))
			if i == 0 {
				c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			}
			c.send(ack(c.want()))
		}
		if log := w.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "larger than gRPC clients accept") || !strings.Contains(log, "type=CDS") {
			t.Error(log)
		}
	})
}

// Removing one key must not remove the line by which another is recognized.
func TestKeysAreRemovedFirst(t *testing.T) {
	s := New[*store.Watch](store.New(), WithRedactor(func(_ *xds.Node, _ *xds.Type, text string) (string, bool) {
		return strings.ReplaceAll(text, "-----BEGIN PRIVATE KEY-----", "…"), true
	}))
	for _, text := range []string{"cannot load -----BEGIN PRIVATE KEY-----\\\npw", "goo.gle/debugstr  key: \"-----BEGIN PRIVATE KEY-----\\npw\": cannot load"} {
		if got := s.shown(&noNode, xds.Listener, text); strings.Contains(got, "pw") || !strings.Contains(got, "…") {
			t.Errorf("SAFE-6 %s", got)
		}
	}
}
