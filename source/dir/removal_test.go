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

// A mover changes the files of a source with a clock of its own.
type mover struct {
	*bench
	start time.Time
}

func moving(t *testing.T, files ...string) *mover {
	m := &mover{newBench(t, files...), time.Now()}
	m.src.home.removals.confirm = 5 * time.Second
	m.now("")
	return m
}

// now loads; with an empty string that succeeds.
func (m *mover) now(refused string) {
	m.Helper()
	_, err := m.src.Load()
	if got := fmt.Sprint(err); err == nil && refused != "" || err != nil && refused == "" || !strings.Contains(got, refused) {
		m.Errorf("after %s: %v, want %q", time.Since(m.start), err, refused)
	}
}

func (m *mover) served(want int) {
	m.Helper()
	if got := m.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Len(); got != want {
		m.Errorf("after %s: %d clusters, want %d", time.Since(m.start), got, want)
	}
}

// rewrite says what the clusters are, in a file whose date moves on.
func (m *mover) rewrite(names ...string) {
	m.Helper()
	m.write("a.yaml", clusters(names...))
	if err := os.Chtimes(m.dir+"/a.yaml", time.Now(), time.Now()); err != nil {
		m.Fatal(err)
	}
}

// "Removals (not additions) of more than a tenth of a type of 20 or more wait for a
// second look some seconds later that agrees, smaller ones are not delayed." (SAFE-10)
func TestRemovalsWait(t *testing.T) {
	all := names("c", 40)
	run := func(name string, f func(*mover)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(moving(t, "a.yaml", clusters(all...), "e.json", endpointsE)) })
		})
	}
	run("a tenth goes at once", func(m *mover) {
		m.rewrite(all[4:]...)
		m.now("")
		m.served(36)
	})
	run("more waits for a second look; what comes does not", func(m *mover) {
		held := func(want int) {
			m.Helper()
			if got := m.src.Held(); got != want {
				m.Errorf("%d held, want %d", got, want)
			}
		}
		m.rewrite(append([]string{"new"}, all[5:]...)...)
		m.now("")
		m.served(41)
		held(5)
		time.Sleep(4 * time.Second)
		m.now("")
		m.served(41)
		held(5)
		time.Sleep(time.Second)
		m.now("")
		m.served(36)
		held(0)
	})
	run("what comes back stays, and the rest waits anew", func(m *mover) {
		m.rewrite(all[10:]...)
		m.now("")
		time.Sleep(4 * time.Second)
		m.rewrite(all[5:]...)
		m.now("")
		time.Sleep(4 * time.Second)
		m.now("")
		m.served(40)
		time.Sleep(time.Second)
		m.now("")
		m.served(35)
	})
	run("of two that wait each is looked at when its time has come", func(m *mover) {
		m.rewrite(all[5:]...)
		m.now("")
		time.Sleep(3 * time.Second)
		m.rewrite(all[9:]...)
		m.now("")
		for _, want := range []int{35, 31} {
			time.Sleep(time.Until(m.src.home.removals.again))
			m.now("")
			m.served(want)
		}
		if took := time.Since(m.start); took != 8*time.Second {
			m.Errorf("after %v", took)
		}
	})
	run("files that are written again and again keep nothing for ever", func(m *mover) {
		for i := range 24 {
			m.rewrite(all[5+i%2:]...) // one comes and goes
			m.now("")
			if i < 20 {
				m.served(40)
			}
			time.Sleep(3 * time.Second)
		}
		m.served(35) // and that one, which has just gone again
	})
	run("what is held does not make the next small changes large ones", func(m *mover) {
		m.rewrite(append(names("d", 5), all[5:]...)...)
		m.now("")
		m.served(45)
		fleet := all[5:]
		for i := range 60 {
			fleet = append(fleet[2:len(fleet):len(fleet)], names(fmt.Sprint("e", i, "."), 2)...)
			time.Sleep(250 * time.Millisecond)
			m.rewrite(append(names("d", 5), fleet...)...)
			m.now("")
		}
		time.Sleep(5 * time.Second)
		m.now("")
		m.served(40)
	})
	run("what is held has gone: half of what the files had is half", func(m *mover) {
		m.rewrite(all[10:]...)
		m.now("")
		m.rewrite(all[21:]...)
		m.now("this would leave only 19 of the 40 CDS resources of the last 10 minutes")
		m.served(40)
	})
	run("little of another type waits for it", func(m *mover) {
		m.rewrite(all[5:]...)
		m.remove("e.json")
		m.now("")
		if got := m.st.Snapshot().View(store.DefaultGroup).Table(xds.Endpoint).Len(); got != 1 {
			m.Errorf("%d assignments, want 1", got)
		}
	})
	run("what has taken the name goes first", func(m *mover) {
		m.write("a.yaml", clusters(all[5:]...), "b.yaml", `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", name: n, aliases: [c0], resource: {`+clusterURL+`, name: n}}`)
		m.now("")
		m.served(40) // n, and all but c0
		if got := m.src.Held(); got != 4 {
			m.Errorf("%d held, want 4: c0 is not served any more", got)
		}
	})
	run("the version of the files is not that of what they do not have", func(m *mover) {
		version := func(want string) {
			m.Helper()
			if got := m.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Version(); (got == "v2") != (want == "v2") {
				m.Errorf("after %s: version %q, want %q", time.Since(m.start), got, want)
			}
		}
		m.write("a.yaml", "version_info: v2\n"+clusters(all[5:]...))
		m.now("")
		m.served(40)
		version("that of the content")
		time.Sleep(5 * time.Second)
		m.now("")
		m.served(35)
		version("v2")
	})
	run("a mistake meanwhile keeps all, and the wait goes on after it", func(m *mover) {
		m.rewrite(all[5:]...)
		m.now("")
		m.write("b.yaml", "{")
		m.now("b.yaml")
		m.served(40)
		time.Sleep(6 * time.Second)
		m.remove("b.yaml")
		m.now("")
		m.served(35)
	})
	run("what is said to be meant goes at once", func(m *mover) {
		m.src.opts.AllowMassDelete = true
		m.rewrite("c1")
		m.now("")
		m.served(1)
	})
}

// "The guard against mass removal counts against a high-water mark over minutes, not
// the last commit." (SAFE-10)
func TestRemovalsInSteps(t *testing.T) {
	all := names("c", 40)
	step := func(m *mover, left int) {
		m.rewrite(all[40-left:]...)
		m.now("")
		time.Sleep(5 * time.Second)
		m.now("")
		m.served(left)
	}
	t.Run("half in ten minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for left := 39; left >= 20; left-- {
				step(m, left)
			}
			m.rewrite(all[21:]...)
			m.now("this would leave only 19 of the 40 CDS resources of the last 10 minutes")
			m.served(20)
			time.Sleep(peakTime)
			m.now("")
			m.served(19)
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
				m.now(refused)
			}
			m.src.opts.Keep = func(c lastgood.Config) { kept = c }
			m.src.home.removals.confirm = 0
			m.rewrite(all[10:]...)
			m.now("")
			again(25, "")
			again(20, "")
			again(19, "this would leave only 19 of the 40 CDS resources of the last 10 minutes")
			m.served(20)
			if _, err := m.src.load(order{approve: true}, &scanner{}); err != nil {
				t.Error(err)
			}
			again(18, "") // of the 19 that were approved of
			again(40, "")
			again(30, "")
			time.Sleep(peakTime + time.Second)
			again(19, "")
			m.served(19)
		})
	})
	t.Run("half of what there was at most", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all[15:]...))
			step(m, 40)
			for left := 36; left >= 20; left -= 4 {
				step(m, left)
			}
			m.rewrite(all[21:]...)
			m.now("this would leave only 19 of the 40 CDS resources of the last 10 minutes")
			m.served(20)
		})
	})
	t.Run("what was long ago is forgotten", func(t *testing.T) {
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
	t.Run("what was few and has become many waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all[30:]...))
			step(m, 40)
			m.rewrite(all[5:]...)
			m.now("")
			m.served(40)
		})
	})
	t.Run("a clock that was set back makes nothing last longer", func(t *testing.T) {
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
	t.Run("after a tenth each step waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for left := 39; left >= 36; left-- {
				m.rewrite(all[40-left:]...)
				m.now("")
				m.served(left)
			}
			m.rewrite(all[5:]...)
			m.now("")
			m.served(36)
		})
	})
	t.Run("names that change are not fewer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := moving(t, "a.yaml", clusters(all...))
			for i := range 20 {
				time.Sleep(10 * time.Second)
				m.rewrite(append(names(fmt.Sprint("d", i, "."), 4), all[4:]...)...)
				m.now("")
				m.served(40)
			}
		})
	})
}

// What waits is looked at again when its time has come, and not only at the next change,
// and is told once. A load that fails is not tried again and again for it. (SAFE-10)
func TestRemovalsAreLookedAtAgain(t *testing.T) {
	all := names("c", 40)
	b := newBench(t, "a.yaml", clusters(all...))
	b.src.home.removals.confirm = time.Hour
	log := make(lines, 100)
	b.src.opts.Log = slog.New(slog.NewTextHandler(log, nil))
	w := watch.NewWatcher(b.src.opts.Log, time.Hour)
	defer w.Close()
	look := func(o order, again bool, told string) {
		t.Helper()
		at := b.src.reload(o, w)
		if in := time.Until(at); at.IsZero() == again || again && (in < time.Hour-time.Minute || in > time.Hour) {
			t.Errorf("again at %v, want it: %v", at, again)
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

// Of files that go one by one the log says so once, and then how many they were. (SAFE-10)
func TestSlowRemoval(t *testing.T) {
	all := names("c", 40)
	synctest.Test(t, func(t *testing.T) {
		m := moving(t, "a.yaml", clusters(all...))
		log := make(lines, 100)
		m.src.opts.Log = slog.New(slog.NewTextHandler(log, nil))
		var told []string
		look := func() {
			m.now("")
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
		m.served(29)
		m.rewrite(all...)
		look()
		const much, more = ` level=WARN msg="removals delayed: many resources are missing from the files" `, ` level=WARN msg="removals delayed: more resources are missing from the files" `
		if got, want := strings.Join(told, "\n"), "0s"+much+"resources=5 first=\"[c0 c1 c2]\" in=0s\n17s"+more+"resources=6"; got != want {
			t.Errorf("told\n%s\nwant\n%s", got, want)
		}
		told = nil
		for i := range 15 { // one more is gone each time, and another comes back: it goes on for a minute
			m.rewrite(append(names("n", i%2+1), all[5+i:]...)...)
			look()
			time.Sleep(4500 * time.Millisecond)
		}
		if n := strings.Count(strings.Join(told, "\n"), more); n != 1 {
			t.Errorf("%d lines that count, want one after a minute:\n%s", n, strings.Join(told, "\n"))
		}
	})
}
