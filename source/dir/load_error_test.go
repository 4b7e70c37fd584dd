package dir

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

// reloads returns a function that reloads, and returns the log lines of that.
func (b *fixture) reloads(t *testing.T) func(force bool) string {
	var log strings.Builder
	b.src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	w := watch.NewWatcher(b.src.opts.Log, b.src.opts.Poll)
	t.Cleanup(w.Close)
	return func(force bool) string {
		log.Reset()
		b.src.reload(order{force: force}, w)
		return strings.ReplaceAll(log.String(), b.dir+"/", "")
	}
}

// OBS-5: a rejected load is logged when it happens, at each change of the files, and every five
// minutes.
func TestRejectedLoadIsLoggedAgain(t *testing.T) {
	for name, bad := range map[string]func(*fixture){
		"a mistake":                 func(b *fixture) { b.write("bad.yaml", "x: y") },
		"a large removal":           func(b *fixture) { b.remove("a.yaml"); b.remove("b.yaml") },
		"a file that is too large":  func(b *fixture) { b.write("bad.yaml", clusters("y")); b.src.opts.MaxFile = 1 },
		"a file that became empty":  func(b *fixture) { b.write("b.yaml", "") },
		"a link that leads nowhere": func(b *fixture) { b.link("nowhere", "bad.yaml") },
		"a directory that is gone":  func(b *fixture) { _ = os.Rename(b.dir, b.dir+"-"); b.src.opts.Confirm = 0 },
	} {
		t.Run("OBS-5 "+name, func(t *testing.T) {
			b := newFixture(t, "a.yaml", clusters("a"), "b.yaml", clusters("b"))
			reload := b.reloads(t)
			if log := reload(false); !strings.Contains(log, "loaded") {
				t.Fatal(log)
			}
			bad(b)
			said := func(when, log string, want bool) {
				t.Helper()
				if strings.Contains(log, `level=ERROR msg="reload rejected, keeping the previous configuration"`) != want || strings.Contains(log, "since="+b.src.failing.since.UTC().Format(time.RFC3339)) != want {
					t.Errorf("%s: %s", when, log)
				}
			}
			said("when it fails", reload(false), true)
			since := b.src.failing.since
			if time.Since(since) > time.Minute {
				t.Error("it fails since", since)
			}
			said("when nothing has changed", reload(false), false)
			said("when somebody asks", reload(true), true)
			b.src.failing.logged = time.Now().Add(-remind + time.Minute)
			said("after less than five minutes", reload(false), false)
			b.src.failing.logged = time.Now().Add(-remind)
			said("after five minutes", reload(false), true)
			said("after five minutes, once", reload(false), false)
			if name == "a directory that is gone" {
				return
			}
			b.write("c.yaml", clusters("c"))
			changed := reload(false)
			if name != "a large removal" { // the file makes the removal small
				said("when another file has changed", changed, true)
				said("which is logged once", reload(false), false)
			}
			if !b.src.failing.since.Equal(since) && b.src.err != nil {
				t.Error("it fails since", b.src.failing.since, "and not", since)
			}
		})
	}
	t.Run("OBS-5 a successful load ends the series of failures", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "b.yaml", "x: y")
		reload := b.reloads(t)
		if log := reload(false); !strings.Contains(log, "reload rejected") || !strings.Contains(log, "level=ERROR msg=\"configuration error\" code=XDS0106 error=\"b.yaml:1:1: ") {
			t.Error(log)
		}
		b.write("b.yaml", clusters("b"))
		if log := reload(false); strings.Contains(log, "reload rejected") || !strings.Contains(log, "msg=loaded") || !b.src.failing.since.IsZero() {
			t.Error(log)
		}
	})
}

func TestPlace(t *testing.T) {
	aliased := "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\naliases: [nick]\nresource: " + endpointsE
	b := newFixture(t, "a.yaml", "\n\n"+clusters("a"), "e.yaml", aliased)
	want := func(typ *xds.Type, name, want string) {
		t.Helper()
		if got := strings.TrimPrefix(b.src.Place(typ, name), b.dir+string(filepath.Separator)); got != want {
			t.Errorf("OBS-1 %s %s is at %q, want %q", typ, name, got, want)
		}
	}
	want(xds.Cluster, "a", "") // nothing is loaded
	b.try()
	for name, at := range map[string]string{"a": "a.yaml:4:3", "b": ""} {
		want(xds.Cluster, name, at)
	}
	want(xds.Endpoint, "e", "e.yaml:1:1")
	want(xds.Endpoint, "nick", "e.yaml:1:1")
	want(xds.Route, "a", "")
	b.write("a.yaml", clusters("b"))
	b.write("bad.yaml", "x: y")
	b.try()
	want(xds.Cluster, "a", "a.yaml:4:3") // which is still served
	b.remove("bad.yaml")
	b.try()
	want(xds.Cluster, "a", "")
	want(xds.Cluster, "b", "a.yaml:2:3")
}

// OBS-6: with Options.References, a source logs the warnings of check, each once. Without it, the
// embedding program knows better whether a missing resource matters.
func TestDanglingReferencesAreLogged(t *testing.T) {
	eds := "{" + clusterURL + ", name: x, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}\n"
	const line = `level=WARN msg="configuration warning" code=XDS0201 problem="a.yaml:1:1: CDS \"x\" refers to EDS \"x\", which no file has`
	for _, wanted := range []bool{true, false} {
		b := newFixture(t, "a.yaml", eds)
		b.src.opts.References = wanted
		reload := b.reloads(t)
		b.try() // as a start does, before Run
		for i, want := range []bool{wanted, false} {
			if log := reload(false); strings.Contains(log, line) != want {
				t.Errorf("look %d: %s", i, log)
			}
		}
		b.write("bad.yaml", "x: y")
		if log := reload(false); strings.Contains(log, "level=WARN") {
			t.Error("the served configuration has not changed:", log)
		}
		b.remove("bad.yaml")
		b.write("e.yaml", strings.ReplaceAll(endpointsE, `"e"`, `"x"`))
		if log := reload(false); strings.Contains(log, "level=WARN") {
			t.Error(log)
		}
		b.remove("e.yaml")
		b.src.opts.AllowMassDelete = true
		if log := reload(false); strings.Contains(log, line) != wanted {
			t.Errorf("the resource is missing again: %s", log)
		}
	}
}
