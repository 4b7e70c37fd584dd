package dir

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// port returns endpoints of a cluster with a port.
func port(cluster string, n int) string {
	return fmt.Sprintf(`{"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: %s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}`+"\n", cluster, n)
}

func (b *fixture) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// events waits until the watcher has the events of all changes so far.
func (b *fixture) events(w *watch.Watcher) {
	b.Helper()
	name := fmt.Sprint("end-of-events-", rand.Int64())
	b.write(name, "")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		seen := false
		w.Replaced(func(path string) bool {
			seen = seen || filepath.Base(path) == name
			return false
		})
		if seen {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal("the events do not arrive")
		}
	}
}

// Only a file that a rename has replaced, and that changes nothing but endpoints, is loaded before the files are
// quiet. Every other change could be half of one.
func TestLoadsEndpointsAtOnce(t *testing.T) {
	replace := func(name, text string) func(*fixture) {
		return func(b *fixture) { b.write(name, text) }
	}
	inPlace := func(name, text string) func(*fixture) {
		return func(b *fixture) { b.must(os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o666)) }
	}
	both := clusters("both") + "---\n" + port("both", 1)
	for name, tt := range map[string]struct {
		do   func(*fixture)
		want bool
	}{
		"a rename": {replace("e.yaml", port("e", 2)), true},
		"a rename from another directory": {func(b *fixture) {
			b.write("_new/x", port("e", 2))
			b.must(os.Rename(b.dir+"/_new/x", b.dir+"/e.yaml"))
		}, true},
		"a hard link that a rename moves": {func(b *fixture) {
			b.write("_x", port("e", 2))
			b.must(os.Link(b.dir+"/_x", b.dir+"/.l"))
			b.must(os.Rename(b.dir+"/.l", b.dir+"/e.yaml"))
		}, true},
		"an older file": {func(b *fixture) {
			b.write(".x", port("e", 2))
			b.must(os.Chtimes(b.dir+"/.x", time.Unix(1, 0), time.Unix(1, 0)))
			b.must(os.Rename(b.dir+"/.x", b.dir+"/e.yaml"))
		}, true},
		"a temporary file without a dot": {func(b *fixture) {
			b.write("sedAbCdE", port("e", 2))
			b.must(os.Rename(b.dir+"/sedAbCdE", b.dir+"/e.yaml"))
		}, true},
		"a hidden temporary file with the same extension": {func(b *fixture) {
			b.write(".e.yaml", port("e", 2))
			b.must(os.Rename(b.dir+"/.e.yaml", b.dir+"/e.yaml"))
		}, true},
		"endpoints next to their cluster":   {replace("both.yaml", strings.Replace(both, "_value: 1}", "_value: 2}", 1)), true},
		"a file below a link":               {replace("_data/l.yaml", port("l", 2)), true},
		"a write in place":                  {inPlace("e.yaml", port("e", 2)), false},
		"a rename, then a write in place":   {func(b *fixture) { b.write("e.yaml", port("e", 2)); inPlace("e.yaml", port("e", 3))(b) }, false},
		"a deleted file that is made again": {func(b *fixture) { b.remove("e.yaml"); inPlace("e.yaml", port("e", 2))(b) }, false},
		"a backup by a rename, as of vim": {func(b *fixture) {
			b.must(os.Rename(b.dir+"/e.yaml", b.dir+"/e.yaml~"))
			inPlace("e.yaml", port("e", 2))(b)
		}, false},
		"two files":                         {func(b *fixture) { b.write("e.yaml", port("e", 2), "both.yaml", both+"\n") }, false},
		"a rename while another is written": {func(b *fixture) { inPlace("new.yaml", "{")(b); b.write("e.yaml", port("e", 2)) }, false},
		"a new file":                        {replace("new.yaml", port("new", 1)), false},
		"another name":                      {replace("e.yaml", port("f", 1)), false},
		"one more name":                     {replace("e.yaml", port("e", 1)+"---\n"+port("f", 1)), false},
		"no name":                           {replace("e.yaml", "# none\n"), false},
		"another reference":                 {replace("e.yaml", strings.Replace(port("e", 1), "lb_endpoints:", "leds_cluster_locality_config: {leds_config: {ads: {}, resource_api_version: V3}, leds_collection_name: \"xdstp:///envoy.config.endpoint.v3.LbEndpoint/x/*\"}, lb_endpoints:", 1)), false},
		"other groups":                      {replace("e.yaml", strings.Replace(port("e", 1), "cluster_name", "x-chancery: {groups: [g]}, cluster_name", 1)), false},
		"a changed cluster":                 {replace("both.yaml", strings.Replace(both, "name: both}", "name: both, connect_timeout: 1s}", 1)), false},
		"a mistake":                         {replace("e.yaml", "{"), false},
		"an empty file":                     {replace("e.yaml", ""), false},
		"a link":                            {func(b *fixture) { b.write("_x", port("e", 2)); b.link("_x", "e.yaml") }, false},
		"a changed rule of a group":         {replace("g/group.yaml", "match: {id: b}\n"), false},
		"a renamed directory":               {func(b *fixture) { b.write("_d/g.yaml", port("g", 1)); b.must(os.Rename(b.dir+"/_d", b.dir+"/d")) }, false},
		"a replaced link to a directory":    {func(b *fixture) { b.write("_v2/d.yaml", port("d", 2)); b.link("_v2", "linked") }, false},
		"an older load that was not allowed": {func(b *fixture) {
			b.write("new.yaml", "{")
			b.src.reload(order{}, new(watch.Watcher))
			b.write("e.yaml", port("e", 2))
		}, false},
		"a file with two paths": {replace("_data/m.yaml", port("m", 2)), false},
	} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, "e.yaml", port("e", 1), "both.yaml", both, "g/group.yaml", "match: {id: a}\n", "g/g.yaml", clusters("g"), "_data/l.yaml", port("l", 1), "_data/m.yaml", port("m", 1), "_v1/d.yaml", port("d", 1))
			commits := 0
			b.src.opts.Keep = func(LastGood) { commits++ }
			b.link("_data/l.yaml", "l.yaml")
			b.link("_data/m.yaml", "m.yaml")
			b.link("../_data/m.yaml", "g/m.yaml")
			b.link("_v1", "linked")
			w := watch.NewWatcher(b.src.opts.Log, time.Hour)
			defer w.Close()
			b.src.reload(order{}, w)
			b.must(b.src.err)
			commits, b.src.last = 0, lastChange{}
			tt.do(b)
			b.events(w)
			_, early := b.src.early(w)
			if early {
				b.src.reload(b.src.ofRun(order{}, watch.Early, w), w)
			}
			if commits > 0 != tt.want {
				t.Errorf("loaded at once: %v (tried: %v), want %v", !tt.want, early, tt.want)
			}
			b.src.reload(order{}, w)
			if b.src.err == nil && commits != 1 {
				t.Errorf("%d commits when the files are quiet", commits)
			}
		})
	}
}

// While a group differs from its files, an early load of one file could commit a part of an earlier change.
func TestNoEarlyLoadAfterPostponedChange(t *testing.T) {
	many := names("c", 40)
	for name, tt := range map[string]struct {
		file, text string
		early      bool
	}{
		"a loaded change":                        {"a.yaml", clusters("a"), true},
		"a change that waits for a missing name": {"a.yaml", tcpListener("a", "80"), false},
		"a change with a mistake":                {"a.yaml", "{", false},
		"a removal that waits":                   {"many.yaml", clusters(many[:20]...), false},
	} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			b := newFixture(t, "e.yaml", port("e", 1), "many.yaml", clusters(many...))
			b.src.home.removals.confirm = time.Hour
			w := watch.NewWatcher(b.src.opts.Log, time.Hour)
			defer w.Close()
			b.src.reload(order{}, w)
			b.write(tt.file, tt.text)
			b.events(w)
			b.src.reload(order{mayWait: true}, w)
			b.src.last = lastChange{}
			b.write("e.yaml", port("e", 2))
			b.events(w)
			if _, early := b.src.early(w); early != tt.early {
				t.Errorf("early: %v", early)
			}
		})
	}
}

// If the system reports no event of a change, the poll finds it. If events were lost, any file may have changed, so
// the load waits for the quiet time.
func TestChangesWithoutEvents(t *testing.T) {
	created := fsnotify.Event{Name: "e.yaml", Op: fsnotify.Create}
	renamed := func(b *fixture) { b.write("e.yaml", port("e", 2)) }
	inPlace := func(b *fixture) {
		b.must(os.WriteFile(filepath.Join(b.dir, "e.yaml"), []byte(port("e", 2)), 0o666))
	}
	both := func(b *fixture) { b.write("e.yaml", port("e", 2), "f.yaml", port("f", 2)) }
	for name, tt := range map[string]struct {
		events []fsnotify.Event
		change func(*fixture)
		want   time.Duration
	}{
		"an event":        {[]fsnotify.Event{created}, renamed, 0},
		"no event":        {nil, renamed, 30*time.Second + quietTime},
		"events are lost": {[]fsnotify.Event{{}, created}, renamed, quietTime},

		"a late event of a file that was read, and a write in place": {[]fsnotify.Event{created}, inPlace, quietTime},
		"an event, and another change without one":                   {[]fsnotify.Event{created}, both, quietTime},
	} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := watch.NewManual(), newFixture(t, "e.yaml", port("e", 1), "f.yaml", port("f", 1))
				var loaded time.Time
				b.src.opts.Poll, b.src.opts.Keep = 30*time.Second, func(LastGood) { loaded = time.Now() }
				_, err := b.src.Load()
				b.must(err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go b.src.run(ctx, w)
				synctest.Wait()
				tt.change(b)
				start := time.Now()
				for _, ev := range tt.events {
					if ev.Name != "" {
						ev.Name = filepath.Join(b.dir, ev.Name)
					}
					w.Event(ev)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := loaded.Sub(start); got != tt.want {
					t.Errorf("loaded after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// After commits in quick succession, Run waits for the end of the change, up to a maximum. Commits of an earlier change
// do not count.
func TestQuietTimeAfterCommits(t *testing.T) {
	for name, tt := range map[string]struct{ before, waited, want time.Duration }{
		"a commit just before":          {0, 0, bulkTime},
		"a commit less than 1 s before": {bulkTime - 1, 0, bulkTime},
		"a commit 1 s before":           {bulkTime, 0, quietTime},
		"changes for 5 s":               {0, 5 * time.Second, bulkTime},
		"changes for almost 10 s":       {0, maxBulkWait - quietTime, quietTime},
	} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(t.TempDir(), nil, Options{})
				first := time.Now()
				s.last = lastChange{at: first.Add(-tt.before), commits: quickCommits}
				time.Sleep(tt.waited)
				if got, _ := s.delay(watch.NewManual(), first); got != tt.want {
					t.Errorf("%v, want %v", got, tt.want)
				}
			})
		})
	}
}

// A commit of the file that the last change replaced is not one of several commits of a change.
func TestChangesOfTheSameFile(t *testing.T) {
	var c lastChange
	for i, step := range []struct {
		changed []string
		again   bool
	}{
		{nil, false}, {nil, false}, {[]string{"a"}, false}, {[]string{"b"}, false}, {[]string{"b"}, true},
		{[]string{"b", "c"}, false}, {[]string{"b"}, false},
	} {
		if c.record(step.changed); c.again != step.again {
			t.Errorf("SAFE-18 change %d, of %v: again %v", i, step.changed, c.again)
		}
	}
}

// The first file of a copy of many files may be loaded early, the next ones wait.
func TestEarlyLoadsArePaced(t *testing.T) {
	for name, tt := range map[string]struct {
		last lastChange
		ago  time.Duration
		want bool
	}{
		"no change before":                   {lastChange{}, time.Hour, true},
		"another file just before":           {lastChange{files: 1}, 0, false},
		"another file some time before":      {lastChange{files: 1}, 3 * quietTime, true},
		"several files some time before":     {lastChange{files: 2}, 3 * quietTime, false},
		"several files more than 1 s before": {lastChange{files: 2}, 2 * bulkTime, true},
		"two commits some time before":       {lastChange{files: 1, commits: quickCommits}, 3 * quietTime, false},
		"the same file just before":          {lastChange{files: 1, only: "e.yaml"}, 0, true},
		"a load of an hour just before":      {lastChange{files: 1, took: time.Hour}, 3 * quietTime, true},
	} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			b := newFixture(t, "e.yaml", port("e", 1))
			w := watch.NewWatcher(b.src.opts.Log, time.Hour)
			defer w.Close()
			b.src.reload(order{}, w)
			if b.src.last.took <= 0 {
				t.Error("the load has no duration")
			}
			b.write("e.yaml", port("e", 2))
			b.events(w)
			if tt.last.only != "" {
				tt.last.only = filepath.Join(b.dir, tt.last.only)
			}
			b.src.last = tt.last
			b.src.last.at = time.Now().Add(-tt.ago)
			if delay, ok := b.src.early(w); ok != tt.want || delay > max(0, tt.last.took-tt.ago) || delay > 0 != (tt.last.took > 0) {
				t.Errorf("early: %v, after %v", ok, delay)
			}
		})
	}
}

// A load waits for resources to which a change refers, for some time.
func TestLoadWaitsForMissingResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route := `{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: %s, virtual_hosts: [{name: h, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %s}}]}]}` + "\n"
		b := newFixture(t, "r.yaml", fmt.Sprintf(route, "r", "missing"))
		b.src.reload(order{}, new(watch.Watcher))
		load := func(want string) time.Duration {
			t.Helper()
			again := b.src.reload(order{mayWait: true}, new(watch.Watcher))
			if got := b.content(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if again.IsZero() {
				return 0
			}
			return time.Until(again)
		}
		wait := func(got, want time.Duration) {
			t.Helper()
			if got != want {
				t.Errorf("it waits for %v, want %v", got, want)
			}
			time.Sleep(got)
		}
		b.write("s.yaml", fmt.Sprintf(route, "s", "c"))
		wait(load("RDS r"), missingWait)
		wait(load("RDS r s"), 0)

		b.write("t.yaml", fmt.Sprintf(route, "t", "d"))
		wait(load("RDS r s"), missingWait)
		b.write("d.yaml", clusters("d"))
		wait(load("CDS d, RDS r s t"), 0)

		b.write("u.yaml", fmt.Sprintf(route, "u", "e"))
		for range 5 { // changes without end
			wait(load("CDS d, RDS r s t"), missingWait)
			b.write("e.yaml", "# "+time.Now().String())
		}
		wait(load("CDS d, RDS r s t u"), 0)

		b.write("v.yaml", fmt.Sprintf(route, "v", "f"))
		load("CDS d, RDS r s t u")
		b.src.reload(order{force: true}, new(watch.Watcher)) // chancery reload does not wait
		wait(load("CDS d, RDS r s t u v"), 0)
	})
}

// A load looks for missing resources before it delays removals. Its warnings know the delayed ones.
func TestDelayedRemovalIsNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range minGuarded {
			names = append(names, fmt.Sprint("c", i))
		}
		b := newFixture(t, "c.yaml", clusters(names...), "r.yaml", `{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: h, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: c0}}]}]}`)
		b.src = New(b.dir, b.st, Options{Log: slog.New(slog.DiscardHandler), References: true, Confirm: time.Minute})
		b.src.reload(order{}, new(watch.Watcher))
		b.write("c.yaml", clusters(names[minGuarded/5:]...))
		for _, want := range []int{0, 1} {
			for range 2 { // the first load waits
				time.Sleep(time.Until(b.src.reload(order{mayWait: true}, new(watch.Watcher))))
			}
			if s := b.src.Summary(); s.Dangling != want || b.src.Held() > 0 != (want == 0) {
				t.Errorf("SAFE-18 %d references to missing resources with %d delayed removals, want %d", s.Dangling, b.src.Held(), want)
			}
		}
	})
}
