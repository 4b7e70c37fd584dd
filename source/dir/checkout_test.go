package dir

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// tree returns the files of a version: n routes, each with its own cluster and endpoints. In the second version
// every second route leads to a new cluster, and the old cluster is gone.
func tree(n, version int) map[string]string {
	files := map[string]string{}
	for i := range n {
		name := fmt.Sprint("c", i)
		if version == 2 && i%2 == 0 {
			name = fmt.Sprint("d", i)
		}
		files[fmt.Sprintf("routes/%d.yaml", i)] = fmt.Sprintf(`{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r%d, virtual_hosts: [{name: h, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %s}}]}]}`+"\n", i, name)
		files["clusters/"+name+".yaml"] = fmt.Sprintf(`{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: %s, type: EDS, eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}}`+"\n", name)
		files["endpoints/"+name+".yaml"] = port(name, version)
	}
	return files
}

// endpointTree returns files with only endpoints.
func endpointTree(n, version int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("e%d.yaml", i)] = port(fmt.Sprint("e", i), version)
	}
	return files
}

// A checkout replaces the files of one version by those of the next, in a random order.
type checkout struct {
	*fixture
	rng    *rand.Rand
	step   time.Duration   // a pause before each file
	pauses []time.Duration // some long pauses of the program
	pause  func()          // before each file, if set
	stalls int             // long pauses that the machine has added
	last   time.Time
	events func(fsnotify.Event) // receives the events of each change; nil: the system has them
}

func newCheckout(t *testing.T) *checkout {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &checkout{fixture: newFixture(t), rng: rand.New(rand.NewPCG(seed, 0))}
}

// serve loads the files and keeps them up to date. It returns a function that ends that.
func (c *checkout) serve(w *watch.Watcher, keep func(LastGood)) (stop func()) {
	c.src = New(c.dir, store.New(), Options{Log: slog.New(slog.DiscardHandler), Poll: time.Hour, AllowMassDelete: true, Keep: keep})
	_, err := c.src.Load()
	c.must(err)
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.src.run(ctx, w) }()
	time.Sleep(2 * quietTime) // until it watches
	return func() { cancel(); <-done }
}

// commitsOf serves one version of the files, replaces it by the next one, and returns the number of commits of that.
func (c *checkout) commitsOf(do func(c *checkout, was, is map[string]string), w *watch.Watcher, was, is map[string]string) int {
	for name, text := range was {
		c.create(filepath.Join(c.dir, name), text, os.O_EXCL)
	}
	kept := &commits{t: c.T}
	defer c.serve(w, kept.keep)()
	do(c, was, is)
	_, err := New(c.dir, store.New(), Options{Log: slog.New(slog.DiscardHandler), Keep: kept.set}).Load()
	c.must(err)
	return kept.wait() - 1 // the first one is before the checkout
}

func (c *checkout) event(path string, op fsnotify.Op) {
	if c.events != nil {
		c.events(fsnotify.Event{Name: path, Op: op})
	}
}

func (c *checkout) remove(path string) {
	if err := os.Remove(path); err == nil {
		c.event(path, fsnotify.Remove)
	} else if !os.IsNotExist(err) {
		c.Fatal(err)
	}
}

func (c *checkout) rename(from, to string) {
	c.must(os.Rename(from, to))
	c.event(from, fsnotify.Rename)
	c.event(to, fsnotify.Create)
}

// each calls do for each name in a random order, with the pauses.
func (c *checkout) each(names []string, do func(name string)) {
	c.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i, name := range names {
		if now := time.Now(); !c.last.IsZero() && now.Sub(c.last) > quietTime/2 {
			c.stalls++
		}
		if len(c.pauses) > 0 && i%(len(names)/len(c.pauses)+1) == 1 {
			time.Sleep(c.pauses[0])
			c.pauses = c.pauses[1:]
		}
		c.last = time.Now()
		time.Sleep(c.step)
		if c.pause != nil {
			c.pause()
		}
		do(name)
	}
}

func (c *checkout) create(path, text string, flags int) {
	c.must(os.MkdirAll(filepath.Dir(path), 0o777))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o666)
	c.must(err)
	if flags == os.O_EXCL {
		c.event(path, fsnotify.Create)
	}
	for _, part := range []string{text[:len(text)/2], text[len(text)/2:]} {
		_, err = f.WriteString(part)
		c.must(err)
		c.event(path, fsnotify.Write)
	}
	c.must(f.Close())
}

// removed returns the names that the new version does not have.
func removed(was, is map[string]string) (names []string) {
	for name := range was {
		if _, ok := is[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// checkouts are the ways in which programs replace a directory, by their system calls.
var checkouts = map[string]func(c *checkout, was, is map[string]string){
	"git checkout": func(c *checkout, was, is map[string]string) {
		c.each(removed(was, is), func(name string) { c.remove(filepath.Join(c.dir, name)) })
		c.each(slices.Collect(maps.Keys(is)), func(name string) {
			path := filepath.Join(c.dir, name)
			if is[name] == was[name] {
				return
			}
			c.remove(path)
			c.create(path, is[name], os.O_EXCL)
		})
	},
	"rsync --delete-before": func(c *checkout, was, is map[string]string) {
		c.each(removed(was, is), func(name string) { c.remove(filepath.Join(c.dir, name)) })
		c.rsync(was, is)
	},
	"rsync --delete-after": func(c *checkout, was, is map[string]string) {
		c.rsync(was, is)
		c.each(removed(was, is), func(name string) { c.remove(filepath.Join(c.dir, name)) })
	},
	"cp -r": func(c *checkout, was, is map[string]string) {
		c.each(slices.Collect(maps.Keys(is)), func(name string) { c.create(filepath.Join(c.dir, name), is[name], os.O_TRUNC) })
		c.each(removed(was, is), func(name string) { c.remove(filepath.Join(c.dir, name)) })
	},
	"mv of directories": func(c *checkout, was, is map[string]string) {
		for name, text := range is {
			c.create(filepath.Join(c.dir, ".next", name), text, os.O_EXCL)
		}
		entries, err := fs.ReadDir(os.DirFS(filepath.Join(c.dir, ".next")), ".")
		c.must(err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		c.must(os.MkdirAll(filepath.Join(c.dir, ".old"), 0o777))
		c.each(names, func(name string) {
			c.rename(filepath.Join(c.dir, name), filepath.Join(c.dir, ".old", name))
			c.rename(filepath.Join(c.dir, ".next", name), filepath.Join(c.dir, name))
		})
	},
}

func (c *checkout) rsync(was, is map[string]string) {
	c.each(slices.Collect(maps.Keys(is)), func(name string) {
		if is[name] == was[name] {
			return
		}
		path := filepath.Join(c.dir, name)
		temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".a1B2c3")
		c.create(temp, is[name], os.O_EXCL)
		c.rename(temp, path)
	})
}

// A checkout, in any order of its files, gives at most three commits. None of them refers to a resource that
// it does not contain.
func TestCheckoutIsGathered(t *testing.T) {
	long := []time.Duration{3 * quietTime, 10 * quietTime, 2 * quietTime, 5 * quietTime}
	for way, do := range checkouts {
		for _, tt := range []struct {
			name   string
			tree   func(n, version int) map[string]string
			pauses []time.Duration
			step   time.Duration
		}{
			{"routes, clusters and endpoints", func(n, version int) map[string]string { return tree(n/3, version) }, nil, 0},
			{"the same, with long pauses", func(n, version int) map[string]string { return tree(n/3, version) }, long, 0},
			{"endpoints", endpointTree, nil, 0},
			{"few endpoints, slowly", func(_, version int) map[string]string { return endpointTree(40, version) }, nil, quietTime / 5},
		} {
			t.Run("SAFE-18 "+way+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				n := 1000
				if testing.Short() {
					n = 150
				}
				w := watch.NewWatcher(slog.New(slog.DiscardHandler), time.Hour)
				defer w.Close()
				c := newCheckout(t)
				c.pauses, c.step = slices.Clone(tt.pauses), tt.step
				n = c.commitsOf(do, w, tt.tree(n, 1), tt.tree(n, 2))
				// A busy machine may stop this program longer than the files must be quiet: each stop may
				// add the early load of a file, and a gathered one.
				if most := 3 + 2*c.stalls; n < 1 || n > most && len(tt.pauses) == 0 || n > most+len(tt.pauses) {
					t.Errorf("%d commits, want at most 3 and %d for stops of the test", n, 2*c.stalls)
				}
				t.Logf("%d commits, %d stops", n, c.stalls)
			})
		}
	}
}

// A checkout of up to 10 s, with any pauses of less than a second, is gathered as well.
func TestSlowCheckoutIsGathered(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 90
	}
	for way, do := range checkouts {
		for kind, tree := range map[string]func(n, version int) map[string]string{
			"endpoints":                      endpointTree,
			"routes, clusters and endpoints": func(n, version int) map[string]string { return tree(n/3, version) },
		} {
			t.Run("SAFE-18 "+way+"/"+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w, c := watch.NewManual(), newCheckout(t)
					c.events = w.Event
					often, longest, left := math.Pow(10, -3*c.rng.Float64()), bulkTime*9/10, maxBulkWait
					c.pause = func() {
						if c.rng.Float64() < often {
							d := min(left, time.Duration(c.rng.Float64()*c.rng.Float64()*float64(longest)))
							left -= d
							time.Sleep(d)
						}
					}
					if n := c.commitsOf(do, w, tree(n, 1), tree(n, 2)); n < 1 || n > 3 {
						t.Errorf("%d commits, want at most 3; %.3f of the files after a pause, %v in all", n, often, maxBulkWait-left)
					}
				})
			})
		}
	}
}

// A program that writes a file without end, and one that writes many, delay a load only to the bound.
func TestChangesWithoutEndAreLoaded(t *testing.T) {
	for name, files := range map[string]int{"one file": 1, "many files": 1000} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := watch.NewManual(), newCheckout(t)
				c.events = w.Event
				var at []time.Duration
				start := time.Now()
				c.create(filepath.Join(c.dir, "c.yaml"), clusters("c"), os.O_EXCL)
				defer c.serve(w, func(LastGood) { at = append(at, time.Since(start)) })()
				start, at = time.Now(), nil
				for i := 0; time.Since(start) < 20*time.Second; i++ {
					c.create(filepath.Join(c.dir, fmt.Sprintf("e%d.yaml", i%files)), port(fmt.Sprint("e", i%files), i+1), os.O_TRUNC)
					time.Sleep(quietTime * 6 / 10) // no load begins in the middle of a write
				}
				synctest.Wait()
				most := maxQuietWait + quietTime
				if files > 1 {
					most = maxBulkWait + quietTime
				}
				for i, next := range append(at[1:], time.Since(start)) {
					if next-at[i] > most {
						t.Errorf("loaded after %v: %v without a load", at, next-at[i])
					}
				}
			})
		})
	}
}

// commits checks and counts the commits of a source.
type commits struct {
	t *testing.T

	mu   sync.Mutex
	n    int
	last xds.Sum // of the last commit
	want xds.Sum
}

func (c *commits) keep(k LastGood) {
	have := map[xds.Ref]bool{}
	for _, t := range k.Types {
		for _, r := range t.Resources {
			have[xds.Ref{Type: t.Type, Name: r.Name}] = true
		}
	}
	for _, t := range k.Types {
		for _, r := range t.Resources {
			for _, ref := range r.Refs {
				if !have[ref] {
					c.t.Errorf("a commit has %s, which refers to %s %q, but not that", r.Name, ref.Type, ref.Name)
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.last = sumOf(k)
}

func (c *commits) set(k LastGood) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.want = sumOf(k)
}

// wait waits for the content of the finished directory, and returns the number of commits.
func (c *commits) wait() int {
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c.mu.Lock()
		n, same := c.n, c.last == c.want
		c.mu.Unlock()
		if same {
			return n
		}
		if time.Now().After(deadline) {
			c.t.Fatal("the finished directory is not loaded")
		}
	}
}

// sumOf returns a hash of all resources.
func sumOf(k LastGood) xds.Sum {
	var text []byte
	for _, t := range k.Types {
		for _, r := range slices.SortedFunc(slices.Values(t.Resources), func(a, b lastgood.Resource) int {
			if a.Name < b.Name {
				return -1
			}
			return 1
		}) {
			text = fmt.Appendln(text, t.Type.URL, r.Name, r.Sum)
		}
	}
	return xds.NewResource(xds.Cluster, "sum", text).Sum
}
