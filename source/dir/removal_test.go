package dir

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A clockedSource is a source with its own clock, whose files the test changes.
type clockedSource struct {
	*fixture
	start time.Time
}

func moving(t *testing.T, files ...string) *clockedSource {
	m := &clockedSource{newFixture(t, files...), time.Now()}
	m.src.home.removals.confirm = 5 * time.Second
	m.expectLoad("")
	return m
}

// expectLoad loads and expects the refusal; "" expects success.
func (m *clockedSource) expectLoad(refused string) {
	m.Helper()
	_, err := m.src.Load()
	if got := fmt.Sprint(err); err == nil && refused != "" || err != nil && refused == "" || !strings.Contains(got, refused) {
		m.Errorf("after %s: %v, want %q", time.Since(m.start), err, refused)
	}
}

func (m *clockedSource) expectServed(want int) {
	m.Helper()
	if got := m.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Len(); got != want {
		m.Errorf("after %s: %d clusters, want %d", time.Since(m.start), got, want)
	}
}

// rewrite writes clusters into a file with a later modification time.
func (m *clockedSource) rewrite(names ...string) {
	m.Helper()
	m.write("a.yaml", clusters(names...))
	if err := os.Chtimes(m.dir+"/a.yaml", time.Now(), time.Now()); err != nil {
		m.Fatal(err)
	}
}

// "Removals (not additions) of more than a tenth of a type of 20 or more wait for a
// second look some seconds later that agrees, smaller ones are not delayed." (SAFE-10)
func TestLargeRemovalsAreDelayed(t *testing.T) {
	all := names("c", 40)
	run := func(name string, f func(*clockedSource)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(moving(t, "a.yaml", clusters(all...), "e.json", endpointsE)) })
		})
	}
	run("a tenth is removed at once", func(m *clockedSource) {
		m.rewrite(all[4:]...)
		m.expectLoad("")
		m.expectServed(36)
	})
	run("more is delayed until a second look; additions are not", func(m *clockedSource) {
		held := func(want int) {
			m.Helper()
			if got := m.src.Held(); got != want {
				m.Errorf("%d held, want %d", got, want)
			}
		}
		m.rewrite(append([]string{"new"}, all[5:]...)...)
		m.expectLoad("")
		m.expectServed(41)
		held(5)
		time.Sleep(4 * time.Second)
		m.expectLoad("")
		m.expectServed(41)
		held(5)
		time.Sleep(time.Second)
		m.expectLoad("")
		m.expectServed(36)
		held(0)
	})
	run("a resource that comes back stays, and the delay of the rest begins again", func(m *clockedSource) {
		m.rewrite(all[10:]...)
		m.expectLoad("")
		time.Sleep(4 * time.Second)
		m.rewrite(all[5:]...)
		m.expectLoad("")
		time.Sleep(4 * time.Second)
		m.expectLoad("")
		m.expectServed(40)
		time.Sleep(time.Second)
		m.expectLoad("")
		m.expectServed(35)
	})
	run("two delayed removals are checked at their own times", func(m *clockedSource) {
		m.rewrite(all[5:]...)
		m.expectLoad("")
		time.Sleep(3 * time.Second)
		m.rewrite(all[9:]...)
		m.expectLoad("")
		for _, want := range []int{35, 31} {
			time.Sleep(time.Until(m.src.home.removals.again))
			m.expectLoad("")
			m.expectServed(want)
		}
		if took := time.Since(m.start); took != 8*time.Second {
			m.Errorf("after %v", took)
		}
	})
	run("files that are written again and again do not delay for ever", func(m *clockedSource) {
		for i := range 24 {
			m.rewrite(all[5+i%2:]...) // one resource disappears and comes back
			m.expectLoad("")
			if i < 20 {
				m.expectServed(40)
			}
			time.Sleep(3 * time.Second)
		}
		m.expectServed(35) // the five delayed resources are removed; c5 has just disappeared again and is delayed
	})
	run("delayed removals do not make the next small changes large", func(m *clockedSource) {
		m.rewrite(append(names("d", 5), all[5:]...)...)
		m.expectLoad("")
		m.expectServed(45)
		fleet := all[5:]
		for i := range 60 {
			fleet = append(fleet[2:len(fleet):len(fleet)], names(fmt.Sprint("e", i, "."), 2)...)
			time.Sleep(250 * time.Millisecond)
			m.rewrite(append(names("d", 5), fleet...)...)
			m.expectLoad("")
		}
		time.Sleep(5 * time.Second)
		m.expectLoad("")
		m.expectServed(40)
	})
	run("a delayed removal counts as missing: half of the rest is half", func(m *clockedSource) {
		m.rewrite(all[10:]...)
		m.expectLoad("")
		m.rewrite(all[21:]...)
		m.expectLoad("this would leave only 19 of the 40 CDS resources of the last 10 minutes")
		m.expectServed(40)
	})
	run("a small removal of another type is delayed together with a large one", func(m *clockedSource) {
		m.rewrite(all[5:]...)
		m.remove("e.json")
		m.expectLoad("")
		if got := m.st.Snapshot().View(store.DefaultGroup).Table(xds.Endpoint).Len(); got != 1 {
			m.Errorf("%d assignments, want 1", got)
		}
	})
	run("a name that an alias takes over is removed at once", func(m *clockedSource) {
		m.write("a.yaml", clusters(all[5:]...), "b.yaml", `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", name: n, aliases: [c0], resource: {`+clusterURL+`, name: n}}`)
		m.expectLoad("")
		m.expectServed(40) // n and all old resources except c0
		if got := m.src.Held(); got != 4 {
			m.Errorf("%d held, want 4: c0 is not served any more", got)
		}
	})
	run("delayed resources do not get the version of the files", func(m *clockedSource) {
		version := func(want string) {
			m.Helper()
			if got := m.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Version(); (got == "v2") != (want == "v2") {
				m.Errorf("after %s: version %q, want %q", time.Since(m.start), got, want)
			}
		}
		m.write("a.yaml", "version_info: v2\n"+clusters(all[5:]...))
		m.expectLoad("")
		m.expectServed(40)
		version("that of the content")
		time.Sleep(5 * time.Second)
		m.expectLoad("")
		m.expectServed(35)
		version("v2")
	})
	run("a mistake keeps all resources, and the delay continues after it", func(m *clockedSource) {
		m.rewrite(all[5:]...)
		m.expectLoad("")
		m.write("b.yaml", "{")
		m.expectLoad("b.yaml")
		m.expectServed(40)
		time.Sleep(6 * time.Second)
		m.remove("b.yaml")
		m.expectLoad("")
		m.expectServed(35)
	})
	run("approved removals happen at once", func(m *clockedSource) {
		m.src.opts.AllowMassDelete = true
		m.rewrite("c1")
		m.expectLoad("")
		m.expectServed(1)
	})
}

// "The guard against mass removal counts against a high-water mark over minutes, not
// the last commit." (SAFE-10)
func TestRemovalsInStepsAreRefused(t *testing.T) {
	all := names("c", 40)
	step := func(m *clockedSource, left int) {
		m.rewrite(all[40-left:]...)
		m.expectLoad("")
		time.Sleep(5 * time.Second)
		m.expectLoad("")
		m.expectServed(left)
	}
	t.Run("half in ten minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for left := 39; left >= 20; left-- {
				step(m, left)
			}
			m.rewrite(all[21:]...)
			m.expectLoad("this would leave only 19 of the 40 CDS resources of the last 10 minutes")
			m.expectServed(20)
			time.Sleep(peakTime)
			m.expectLoad("")
			m.expectServed(19)
		})
	})
	t.Run("half in ten minutes, with a restart before each step", func(t *testing.T) {
		// "Removals beyond a share, at once or little by little, wait for a word." (SAFE-10)
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			var kept lastgood.Config
			again := func(left int, refused string) {
				m.Helper()
				m.write("a.yaml", clusters(all[40-left:]...))
				m.st = store.New()
				m.src = New(m.dir, m.st, Options{Keep: func(c lastgood.Config) { kept = c }})
				if err := m.src.Restore(kept); err != nil {
					t.Fatal(err)
				}
				m.expectLoad(refused)
			}
			m.src.opts.Keep = func(c lastgood.Config) { kept = c }
			m.src.home.removals.confirm = 0
			m.rewrite(all[10:]...)
			m.expectLoad("")
			again(25, "")
			again(20, "")
			again(19, "this would leave only 19 of the 40 CDS resources of the last 10 minutes")
			m.expectServed(20)
			if _, err := m.src.load(order{approve: true}, &scanner{}); err != nil {
				t.Error(err)
			}
			again(18, "") // 18 of the 19 approved resources
			again(40, "")
			again(30, "")
			time.Sleep(peakTime + time.Second)
			again(19, "")
			m.expectServed(19)
		})
	})
	t.Run("half of the highest number", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all[15:]...))
			step(m, 40)
			for left := 36; left >= 20; left -= 4 {
				step(m, left)
			}
			m.rewrite(all[21:]...)
			m.expectLoad("this would leave only 19 of the 40 CDS resources of the last 10 minutes")
			m.expectServed(20)
		})
	})
	t.Run("old numbers are forgotten", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for left := 39; left >= 10; left-- {
				time.Sleep(peakTime / 2)
				step(m, left)
			}
			if n := len(m.src.home.removals.peaks[xds.Cluster.URL]); n > 3 {
				t.Errorf("%d numbers are remembered", n)
			}
		})
	})
	t.Run("a type that became large is guarded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all[30:]...))
			step(m, 40)
			m.rewrite(all[5:]...)
			m.expectLoad("")
			m.expectServed(40)
		})
	})
	t.Run("setting the clock back does not prolong the recent counts", func(t *testing.T) {
		var m removals
		now := time.Now()
		m.restore(now, []lastgood.Peak{{URL: xds.Cluster.URL, N: 40, Until: now.Add(time.Hour)}})
		if top := m.top(now, xds.Cluster.URL, 1); top != 40 {
			t.Errorf("%d are remembered, want 40", top)
		}
		if top := m.top(now.Add(peakTime+time.Second), xds.Cluster.URL, 1); top != 1 {
			t.Errorf("%d are remembered after %v", top, peakTime)
		}
	})
	t.Run("after a tenth, each step is delayed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for left := 39; left >= 36; left-- {
				m.rewrite(all[40-left:]...)
				m.expectLoad("")
				m.expectServed(left)
			}
			m.rewrite(all[5:]...)
			m.expectLoad("")
			m.expectServed(36)
		})
	})
	t.Run("changed names are not a removal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for i := range 20 {
				time.Sleep(10 * time.Second)
				m.rewrite(append(names(fmt.Sprint("d", i, "."), 4), all[4:]...)...)
				m.expectLoad("")
				m.expectServed(40)
			}
		})
	})
}

// Delayed removals are checked when their time has come, not only at the next change, and they are
// logged once. A failed load is not repeated for them. (SAFE-10)
func TestDelayedRemovalsAreCheckedInTime(t *testing.T) {
	all := names("c", 40)
	b := newFixture(t, "a.yaml", clusters(all...))
	b.src.home.removals.confirm = time.Hour
	log := make(lines, 100)
	b.src.opts.Log = slog.New(slog.NewTextHandler(log, nil))
	w := watch.NewWatcher(b.src.opts.Log, time.Hour)
	defer w.Close()
	look := func(o order, again bool, told string) {
		t.Helper()
		at := b.src.reload(o, w)
		if in := time.Until(at); at.IsZero() == again || again && (in < time.Hour-time.Minute || in > time.Hour) {
			t.Errorf("next look at %v, want one: %v", at, again)
		}
		var all []string
		for len(log) > 0 {
			all = append(all, <-log)
		}
		if got := strings.Join(all, "\n"); strings.Contains(got, "removals delayed: many") != (told == "held") || told != "" && told != "held" && !strings.Contains(got, told) {
			t.Errorf("told %q, want %q", got, told)
		}
	}
	look(order{}, false, "msg=loaded")
	b.write("a.yaml", clusters(all[5:]...))
	look(order{}, true, "held")
	look(order{}, true, "")
	b.write("b.yaml", "{")
	look(order{}, false, "reload rejected")
	b.remove("b.yaml")
	look(order{approve: true}, false, "set=0 removed=5 took=")
	b.write("a.yaml", clusters("c39"))
	look(order{approve: true}, false, "removals=approved")
}

// If files disappear one by one, the log has one line at the beginning and one with the total.
// (SAFE-10)
func TestSlowRemovalIsLoggedOnce(t *testing.T) {
	all := names("c", 40)
	synctest.Test(t, func(t *testing.T) {
		m := moving(t, "a.yaml", clusters(all...))
		log := make(lines, 100)
		m.src.opts.Log = slog.New(slog.NewTextHandler(log, nil))
		var told []string
		look := func() {
			m.expectLoad("")
			m.src.logDelayed(time.Now())
			for len(log) > 0 {
				told = append(told, fmt.Sprint(time.Since(m.start), " ", <-log))
			}
		}
		for i := 5; i < 12; i++ {
			m.rewrite(all[i:]...)
			look()
			look() // nothing is new
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		look()
		m.expectServed(29)
		m.rewrite(all...)
		look()
		const much, more = ` level=WARN msg="removals delayed: many resources are missing from the files" `, ` level=WARN msg="removals delayed: more resources are missing from the files" `
		if got, want := strings.Join(told, "\n"), "0s"+much+"resources=5 first=\"[c0 c1 c2]\" in=0s\n17s"+more+"resources=6"; got != want {
			t.Errorf("told\n%s\nwant\n%s", got, want)
		}
		told = nil
		for i := range 15 { // each time one more resource is missing and another comes back, for a minute
			m.rewrite(append(names("n", i%2+1), all[5+i:]...)...)
			look()
			time.Sleep(4500 * time.Millisecond)
		}
		if n := strings.Count(strings.Join(told, "\n"), more); n != 1 {
			t.Errorf("%d lines with the count, want one after a minute:\n%s", n, strings.Join(told, "\n"))
		}
	})
}
