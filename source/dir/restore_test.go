package dir

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// "A start on nothing, on mistakes or on half a configuration tells no client that
// anything is gone: the last good is served, or nothing is answered." (SAFE-10)
func TestRestore(t *testing.T) {
	all := names("c", 30)
	var kept lastgood.Config
	first := newFixture(t, "a.yaml", "version_info: v7\n"+clusters(all...))
	first.src.opts.Keep = func(c lastgood.Config) { kept = c }
	if _, err := first.src.Load(); err != nil {
		t.Fatal(err)
	}
	restored := func(t *testing.T, files ...string) *fixture {
		b := newFixture(t, files...)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		return b
	}
	served := func(b *fixture, n int, version string) {
		b.Helper()
		if got := b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster); got.Len() != n || got.Version() != version {
			b.Errorf("%d clusters at %s, want %d at %s", got.Len(), got.Version(), n, version)
		}
	}
	t.Run("the stored configuration is served before the files are read, with its version", func(t *testing.T) { served(restored(t), 30, "v7") })
	t.Run("the files are compared with the stored configuration", func(t *testing.T) {
		b := restored(t, "a.yaml", clusters(all[:10]...))
		if got := b.try(); !strings.HasPrefix(got, "this would remove 20 of 30 CDS resources") {
			t.Error(got)
		}
		served(b, 30, "v7")
	})
	t.Run("missing files do not remove the stored configuration", func(t *testing.T) {
		b := restored(t)
		if got := b.try(); !strings.HasPrefix(got, "the directory has no files any more") {
			t.Error(got)
		}
		served(b, 30, "v7")
	})
	t.Run("files without resources do not remove the stored configuration", func(t *testing.T) {
		// "A start on nothing [...] tells no client that anything is gone: the last good is
		// served." (SAFE-10) This also holds for types of fewer than 20 resources.
		var kept lastgood.Config
		first := newFixture(t, "a.yaml", clusters("a", "b"))
		first.src.opts.Keep = func(c lastgood.Config) { kept = c }
		first.load("CDS a b")
		b := newFixture(t, "a.yaml", "# soon\n")
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		for range 2 { // looks
			if got := b.try(); !strings.HasPrefix(got, "no file has a resource any more") {
				t.Error(got)
			}
			if got := b.content(); got != "CDS a b" {
				t.Error(got)
			}
		}
		if _, err := b.src.load(order{approve: true}, &scanner{}); err != nil {
			t.Error(err)
		}
		if got := b.content(); got != "" {
			t.Error("the approved removals did not happen:", got)
		}
	})
	t.Run("removals since that are not refused are logged once", func(t *testing.T) {
		var kept lastgood.Config
		first := newFixture(t, "a.yaml", clusters(names("c", 10)...), "e.json", endpointsE)
		first.src.opts.Keep = func(c lastgood.Config) { kept = c }
		first.try()
		for _, tt := range []struct {
			left []string
			all  bool // all removals are approved
			want string
		}{
			{names("c", 1), false, `level=WARN msg="more than half of a type is missing from the files, compared to the last good configuration" gone="[9 of 10 CDS 1 of 1 EDS]"`},
			{names("c", 1), true, `level=WARN msg="more than half of a type is missing from the files, compared to the last good configuration" gone="[9 of 10 CDS 1 of 1 EDS]"`},
			{names("c", 5), false, `level=WARN msg="more than half of a type is missing from the files, compared to the last good configuration" gone="[1 of 1 EDS]"`},
		} {
			log := make(lines, 10)
			b := newFixture(t, "a.yaml", "{")
			b.src.opts.Log, b.src.opts.AllowMassDelete = slog.New(slog.NewTextHandler(log, nil)), tt.all
			if err := b.src.Restore(kept); err != nil {
				t.Fatal(err)
			}
			b.try() // a mistake: the removals are not known yet
			b.write("a.yaml", clusters(tt.left...))
			for range 2 {
				b.load("CDS " + strings.Join(tt.left, " "))
			}
			b.write("a.yaml", clusters("other"))
			b.load("CDS other") // a removal that is small but logged
			if len(log) != 1 {
				t.Fatalf("%d lines", len(log))
			}
			if got := <-log; got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		}
		half := newFixture(t, "a.yaml", clusters(names("c", 5)...), "e.json", endpointsE)
		log := make(lines, 10)
		half.src.opts.Log = slog.New(slog.NewTextHandler(log, nil))
		if err := half.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		half.try()
		if len(log) != 0 {
			t.Errorf("half is not more than half: %s", <-log)
		}
	})
	t.Run("each change is stored", func(t *testing.T) {
		n := 0
		b := newFixture(t, "a.yaml", clusters("a"))
		b.src.opts.Keep = func(lastgood.Config) { n++ }
		b.load("CDS a")
		b.write("a.yaml", clusters("a")+"# a word\n")
		b.load("CDS a")
		if n != 1 {
			t.Errorf("written %d times, want once", n)
		}
		b.write("a.yaml", clusters("a", "b"))
		b.load("CDS a b")
		if n != 2 {
			t.Errorf("written %d times, want twice", n)
		}
	})
	t.Run("a resource that Review rejects is not served", func(t *testing.T) {
		b := newFixture(t)
		b.src.opts.Review = func([]Loaded) ([]Loaded, error) { return nil, errors.New("no") }
		if err := b.src.Restore(kept); err == nil || b.st.Snapshot().View(store.DefaultGroup) != nil {
			t.Error("it is served", err)
		}
	})
	t.Run("references are restored", func(t *testing.T) {
		var kept lastgood.Config
		first := newFixture(t, "a.yaml", "{"+clusterURL+", name: backend, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}\n")
		first.src.opts.Keep = func(c lastgood.Config) { kept = c }
		if _, err := first.src.Load(); err != nil {
			t.Fatal(err)
		}
		r := &kept.Types[0].Resources[0]
		want := r.Refs
		r.Resource = xds.NewResource(r.Type, r.Name, r.Body) // a copy, as a start reads it from the disk
		b := newFixture(t)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		got := b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Lookup("backend").Refs
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("refers to %v, want %v", got, want)
		}
	})
	t.Run("recently removed resources are removed before the first client connects", func(t *testing.T) {
		var kept lastgood.Config
		first := newFixture(t, "a.yaml", clusters("a", "b", "c"))
		first.src.opts.Keep = func(c lastgood.Config) { kept = c }
		first.try()
		first.write("a.yaml", clusters("a", "b"))
		first.try()
		first.write("a.yaml", clusters("a", "c"))
		first.try()
		if len(kept.Gone) != 1 || len(kept.Gone[0].Resources) != 1 || kept.Gone[0].Resources[0].Name != "b" {
			t.Fatalf("gone: %v", kept.Gone)
		}
		recent := func(b *fixture) (names []string) {
			w := watchtest.Open(t, b.st, nil)
			defer w.Close()
			for _, table := range w.Recent(xds.Cluster) {
				for r := range table.All() {
					names = append(names, r.Name)
				}
			}
			slices.Sort(names)
			return names
		}
		b := newFixture(t, "a.yaml", clusters("a", "c"))
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		if got := b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster); got.Len() != 2 || got.Departed("b") == nil || !slices.Equal(recent(b), []string{"a", "b", "c"}) {
			t.Errorf("served %d, of before %v", got.Len(), recent(b))
		}
		var again lastgood.Config
		b.src.opts.Keep = func(c lastgood.Config) { again = c }
		b.try()
		if len(again.Gone) != 1 {
			t.Error("it is forgotten")
		}
		b = newFixture(t)
		b.src.opts.Review = func(all []Loaded) ([]Loaded, error) {
			if len(all) == 1 { // b
				return nil, errors.New("no")
			}
			return nil, nil
		}
		if err := b.src.Restore(kept); err != nil || len(recent(b)) != 0 {
			t.Errorf("resources that the review refuses were restored: %v, %v", recent(b), err)
		}
	})
	t.Run("an unknown removed resource does not prevent the restore", func(t *testing.T) {
		with := kept
		with.Gone = []lastgood.Type{{Type: xds.TypeOf("type.googleapis.com/of.before.Message"), Resources: []lastgood.Resource{{Resource: xds.NewResource(xds.TypeOf("type.googleapis.com/of.before.Message"), "old", nil)}}}}
		var log bytes.Buffer
		b := newFixture(t)
		b.src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := b.src.Restore(with); err != nil {
			t.Fatal(err)
		}
		served(b, 30, "v7")
		if got := log.String(); !strings.Contains(got, "cannot read which resources were removed shortly before") || !strings.Contains(got, "resources=1") {
			t.Error(got)
		}
	})
	// withheld restores the stored resources and a withheld type, which is unknown until the files are loaded.
	withheld := func(t *testing.T, more lastgood.Type, name string) (log bytes.Buffer) {
		with := kept
		with.Types = append([]lastgood.Type{more}, kept.Types...)
		b := newFixture(t, "a.yaml", clusters(all...))
		b.src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := b.src.Restore(with); err != nil {
			t.Fatal(err)
		}
		w := watchtest.Open(t, b.st, nil)
		defer w.Close()
		unknown := func(want bool) {
			t.Helper()
			v, _ := watchtest.Next(t, w)
			if u, is := v.(xds.Undecided); (is && u.Undecided(more.Type, name)) != want {
				t.Errorf("unknown: %v, want %v", !want, want)
			}
			if got := v.Table(more.Type).Lookup(name); got != nil {
				t.Errorf("%q is served", name)
			}
		}
		unknown(true)
		b.try()
		unknown(false)
		return log
	}
	t.Run("secrets that were not stored are unknown until the files are loaded", func(t *testing.T) {
		withheld(t, lastgood.Type{Type: xds.Secret, Withheld: true}, "s")
	})
	v2 := lastgood.Type{Type: xds.Cluster.Legacy(), Resources: []lastgood.Resource{{Resource: xds.NewResource(xds.Cluster.Legacy(), "old", nil)}}}
	t.Run("v2 resources are left out and logged without the option", func(t *testing.T) {
		log := withheld(t, v2, "old")
		if got := log.String(); !strings.Contains(got, "Options.V2 serves them") {
			t.Error(got)
		}
	})
	t.Run("v2 resources are served with the option", func(t *testing.T) {
		b := newFixture(t)
		b.src.opts.V2 = true
		if err := b.src.Restore(lastgood.Config{Types: []lastgood.Type{v2}}); err != nil {
			t.Fatal(err)
		}
		if b.st.Snapshot().View(store.DefaultGroup).Table(v2.Type).Lookup("old") == nil {
			t.Error("the v2 resource is not served")
		}
	})
}

func TestRecentlyRemovedResources(t *testing.T) {
	of := func(names ...string) groupContent {
		w := groupContent{types: map[string]*typeContent{}}
		for _, n := range names {
			w.add(Loaded{Resource: xds.NewResource(xds.Cluster, n, nil)})
		}
		return w
	}
	start := time.Now()
	d := departed(nil).after(start, of("a", "b"), of("b"))
	d = d.after(start.Add(rememberTime), of("b"), of("c"))
	if len(d) != 2 {
		t.Error(d)
	}
	if d = d.after(start.Add(rememberTime+time.Second), of("c"), of("c")); len(d) != 1 {
		t.Error(d)
	}
	if d = d.after(start.Add(rememberTime+time.Second), of("c"), of("b", "c")); len(d) != 0 {
		t.Error("the resource that came back is still remembered as removed", d)
	}
	d = departed(nil).after(start, of("old"), of())
	d = d.after(start.Add(time.Second), of(names("n", maxDeparted)...), of())
	if _, is := d[resourceKey{xds.Cluster.URL, "old"}]; is || len(d) != maxDeparted {
		t.Errorf("%d are remembered, the oldest: %v", len(d), is)
	}
}

// A directory that is empty at the start counts as not mounted yet.
func TestEmptyDirectoryAtStart(t *testing.T) {
	for empty, known := range map[bool]bool{false: false, true: true} {
		b := newFixture(t)
		b.src.opts.AllowEmpty = empty
		b.load("")
		if got := b.st.Snapshot().View(store.DefaultGroup) != nil; got != known {
			t.Errorf("allowed: %v; known: %v", empty, got)
		}
		b.write("a.yaml", clusters("a"))
		b.load("CDS a")
		b.write("a.yaml", "resources: []\n")
		b.load("")
		if b.st.Snapshot().View(store.DefaultGroup) == nil {
			t.Error("the emptied group is not known")
		}
	}
}

// "What is refused is approved at run time, one time." (SAFE-10)
func TestReloadAndWaitApprovesOnce(t *testing.T) {
	all := names("c", 30)
	b := newFixture(t, "a.yaml", clusters(all...))
	b.run()
	order := func(approve bool, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got := "ok"
		if _, err := b.src.ReloadAndWait(ctx, approve); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	b.write("a.yaml", clusters(all[:10]...))
	order(false, `this would remove 20 of 30 CDS resources, such as ["c10" "c11" "c12"]`)
	order(true, "ok")
	if n := b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Len(); n != 10 {
		t.Errorf("%d clusters", n)
	}
	b.write("a.yaml", clusters(all...))
	order(false, "ok")
	b.remove("a.yaml")
	order(false, "the directory has no files any more")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.src.ReloadAndWait(gone, false); !errors.Is(err, context.Canceled) && err == nil {
		t.Errorf("the canceled call returned %v", err)
	}
}

// A restore does not remove resources that the program itself has set in the group: neither under the
// name of a removed resource, nor of a type that was not stored.
func TestRestoreKeepsOtherResources(t *testing.T) {
	var kept lastgood.Config
	first := newFixture(t, "a.yaml", clusters("a"), "b.yaml", clusters("b"))
	first.src.opts.Keep = func(c lastgood.Config) { kept = c }
	first.load("CDS a b")
	first.remove("b.yaml")
	first.load("CDS a")
	if len(kept.Gone) != 1 {
		t.Fatal("nothing has gone")
	}
	kept.Types = append(kept.Types, lastgood.Type{Type: xds.Secret, Withheld: true})
	b := newFixture(t, "a.yaml", clusters("a"))
	mine := xds.NewResource(xds.Cluster, "b", []byte("mine"))
	if _, err := b.st.Update(func(tx *store.Tx) error {
		tx.Set(mine, xds.NewResource(xds.Secret, "s", []byte("mine")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.src.Restore(kept); err != nil {
		t.Fatal(err)
	}
	has := func(when string) {
		t.Helper()
		view := b.st.Snapshot().View(store.DefaultGroup)
		if got := view.Table(xds.Cluster).Lookup("b"); got != mine {
			t.Errorf("%s the cluster is %v", when, got)
		}
		if view.Table(xds.Secret).Lookup("s") == nil {
			t.Errorf("%s there is no secret", when)
		}
	}
	has("restored:")
	if _, err := b.src.Load(); err != nil {
		t.Fatal(err)
	}
	has("loaded:")
}
