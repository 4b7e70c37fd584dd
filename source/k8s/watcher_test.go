package k8s

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/source/k8s/internal/apitest"
)

// A heard is a watcher in a bubble of synctest, with its reports.
type heard struct {
	*testing.T
	mu    sync.Mutex
	has   map[string]string
	times map[string]int
	log   bytes.Buffer
	fault string // the last reported one
	ready bool
	stop  func() // ends the watcher, and waits for that
}

// listen runs a watcher until the test ends.
func listen(t *testing.T, client kubernetes.Interface, o Options) *heard {
	t.Helper()
	h := &heard{T: t, has: map[string]string{}, times: map[string]int{}}
	o.Log, o.Every = slog.New(slog.NewTextHandler(h, nil)), time.Millisecond
	o.Fault = func(why string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.fault = why
	}
	w, err := New(client, func(cluster string, all []api.Endpoint) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.has[cluster] = shown(all)
		h.times[cluster]++
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		w.Run(ctx, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ready = true
		})
	})
	h.stop = func() { cancel(); running.Wait() }
	t.Cleanup(h.stop)
	return h
}

// Write implements [io.Writer], for the log.
func (h *heard) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(line)
}

// faulty returns the reported fault.
func (h *heard) faulty() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault
}

// said returns the log lines since its last call.
func (h *heard) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.log.String()
	h.log.Reset()
	return all
}

func (h *heard) get(cluster string) (string, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.has[cluster], h.times[cluster]
}

// gets waits until a cluster has endpoints.
func (h *heard) gets(cluster, want string) {
	h.Helper()
	got := ""
	for range 10 * 60 {
		synctest.Wait()
		var times int
		if got, times = h.get(cluster); got == want && times > 0 {
			return
		}
		time.Sleep(time.Second)
	}
	h.Fatalf("%s has %q, want %q", cluster, got, want)
}

var mapped = Options{Mappings: []Mapping{{"backend", Service{"ns", "b", "http"}}, {"none", Service{"ns", "x", ""}}}}

// Slices appear, change and disappear at client-go's fake of an API server.
func TestFakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(slice("s", "http:80", "10.0.0.1"))
		h := listen(t, client, mapped)
		h.gets("backend", "10.0.0.1:80")
		h.gets("none", "")
		api := client.DiscoveryV1().EndpointSlices("ns")
		do := func(_ *discovery.EndpointSlice, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		do(api.Create(t.Context(), slice("t", "http:80", "10.0.0.2", "10.0.0.1"), meta.CreateOptions{}))
		h.gets("backend", "10.0.0.1:80, 10.0.0.2:80")
		do(api.Update(t.Context(), slice("s", "http:80", "10.0.0.3!st"), meta.UpdateOptions{}))
		h.gets("backend", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80 DRAINING")
		if err := api.Delete(t.Context(), "t", meta.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		h.gets("backend", "10.0.0.3:80 DRAINING")
	})
}

// An API server that is away, a lost watch, and 410 Gone change nothing by themselves. Removals since
// are reported when the server is back. This holds for API servers with and without lists by watch.
func TestWatchEnds(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(map[bool]string{false: "lists by a watch", true: "lists"}[old], func(t *testing.T) { synctest.Test(t, func(t *testing.T) { watchEnds(t, old) }) })
	}
}

func watchEnds(t *testing.T, old bool) {
	s := apitest.StartPiped(t)
	s.Old = old
	s.Put(slice("s", "http:80", "10.0.0.1"))
	s.Put(slice("t", "http:80", "10.0.0.2"))
	h := listen(t, s.Client, mapped)
	h.gets("backend", "10.0.0.1:80, 10.0.0.2:80")
	if lists, _ := s.Asked(); (lists > 0) != old {
		t.Errorf("%d lists", lists)
	}
	s.Bookmark()
	s.Put(slice("u", "http:80", "10.0.0.3"))
	h.gets("backend", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80")
	s.Drop()
	s.Put(slice("u", "http:80", "10.0.0.4"))
	h.gets("backend", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.4:80")

	for what, away := range map[string]struct{ leave, back func() }{
		"answers 503": {func() { s.Refuse(http.StatusServiceUnavailable) }, func() { s.Refuse(0) }},
		"is killed":   {s.Kill, s.Revive},
	} {
		s.Put(slice("s", "http:80", "10.0.0.1"))
		h.gets("backend", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.4:80")
		_, before := h.get("backend")
		away.leave()
		s.Delete("ns", "s")
		s.Compact()
		time.Sleep(time.Hour)
		if got, times := h.get("backend"); times != before {
			t.Errorf("while the server %s: %s", what, got)
		}
		away.back()
		h.gets("backend", "10.0.0.2:80, 10.0.0.4:80")
	}
	s.Compact() // 410 in the middle of a watch
	s.Put(slice("s", "http:80", "10.0.0.5"))
	h.gets("backend", "10.0.0.2:80, 10.0.0.4:80, 10.0.0.5:80")
	if _, times := h.get("none"); times != 1 {
		t.Errorf("a cluster without endpoints was told %d times", times)
	}
}

// The log has the reason of a failed watch: at once if it is a new one, and otherwise once a minute.
// This also holds for refused connections, which client-go does not report. A recovery is logged, too.
func TestWatchFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.StartPiped(t)
		s.Put(slice("s", "http:80", "10.0.0.1"))
		says := func(h *heard, least, most int, text string) {
			t.Helper()
			all := h.said()
			if n := strings.Count(all, text); n < least || n > most {
				t.Errorf("%d times %q, want %d to %d:\n%s", n, text, least, most, all)
			}
		}
		s.Kill()
		h := listen(t, s.Client, mapped)
		time.Sleep(10 * time.Minute)
		says(h, 5, 11, "connection refused")
		s.Refuse(http.StatusForbidden)
		s.Revive()
		time.Sleep(time.Minute)
		says(h, 1, 2, "Forbidden")
		s.Refuse(0)
		h.gets("backend", "10.0.0.1:80")
		says(h, 1, 1, "endpoint slices are watched again")
		for range 3 {
			s.Drop() // the end of a watch is not a failure
			time.Sleep(time.Minute)
		}
		says(h, 0, 0, "endpoint slices")
		s.Kill()
		time.Sleep(10 * time.Minute)
		says(h, 5, 11, "connection refused")
		s.Revive()
		time.Sleep(time.Minute)
		says(h, 1, 1, "endpoint slices are watched again")
	})
}

// A failure after a logged recovery is logged at once.
func TestNextFailureIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.StartPiped(t)
		s.Put(slice("s", "http:80", "10.0.0.1"))
		s.Refuse(http.StatusForbidden)
		h := listen(t, s.Client, mapped)
		synctest.Wait()
		s.Refuse(0)
		h.gets("backend", "10.0.0.1:80")
		s.Refuse(http.StatusForbidden)
		time.Sleep(20 * time.Second)
		if all := h.said(); strings.Count(all, "Forbidden") != 2 {
			t.Error(all)
		}
	})
}

// Run ends when ctx is done, also while it waits for an API server that refuses connections.
func TestRunEndsWhileServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.StartPiped(t)
		s.Kill()
		h := listen(t, s.Client, mapped)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		h.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// Nothing is reported before the first complete list. A change that does not affect a cluster is not
// reported.
func TestReportsOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.StartPiped(t)
		s.Refuse(http.StatusServiceUnavailable)
		h := listen(t, s.Client, mapped)
		time.Sleep(time.Hour)
		if h.ready {
			t.Fatal("ready while the API server is away")
		}
		s.Refuse(0)
		s.Put(slice("s", "http:80", "10.0.0.1"))
		h.gets("backend", "10.0.0.1:80")
		_, before := h.get("backend")
		again := slice("s", "http:80", "10.0.0.1")
		again.Labels["other"] = "label"
		s.Put(again)
		more := slice("o", "http:80", "10.0.0.7")
		more.Labels[discovery.LabelServiceName] = "x"
		s.Put(more)
		h.gets("none", "10.0.0.7:80")
		if _, times := h.get("backend"); times != before {
			t.Error("told again what was told")
		}
		// A slice that leaves its service leaves the cluster.
		more.Labels[discovery.LabelServiceName] = "b"
		s.Put(more)
		h.gets("none", "")
		h.gets("backend", "10.0.0.1:80, 10.0.0.7:80")
	})
}

// With All, each port of each selected service is a cluster. A removed one becomes empty.
func TestAllServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.StartPiped(t)
		one := slice("s", "http:80 grpc:81 udp:53", "10.0.0.1")
		one.Labels["mesh"] = "yes"
		s.Put(one)
		other := slice("o", ":80", "10.0.0.2")
		other.Labels[discovery.LabelServiceName], other.Labels["mesh"] = "o", "yes"
		s.Put(other)
		s.Put(slice("unselected", "http:80", "10.0.0.3"))
		h := listen(t, s.Client, Options{All: true, Selector: "mesh=yes", Mappings: []Mapping{{"backend", Service{"ns", "o", ""}}}})
		h.gets("ns/b/http", "10.0.0.1:80")
		h.gets("ns/b/grpc", "10.0.0.1:81")
		h.gets("ns/o", "10.0.0.2:80")
		h.gets("backend", "10.0.0.2:80")
		one.Ports = one.Ports[:1]
		s.Put(one)
		h.gets("ns/b/grpc", "")
		s.Delete("ns", "o")
		h.gets("ns/o", "")
		h.gets("backend", "")
		if len(h.has) != 4 {
			t.Error(h.has)
		}
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {All: true, Names: "x"}, {All: true, Names: "{service}"}, {All: true, Selector: "a=="}, {All: true, Selector: "!("}, {All: true, Families: "ipv5"},
		{Namespace: "other", Mappings: mapped.Mappings},
	} {
		if _, err := New(fake.NewClientset(), nil, o); err == nil && o.Selector != "a==" {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := New(fake.NewClientset(), nil, Options{All: true, Namespace: "ns", Names: "{service}:{port}"}); err != nil {
		t.Error(err)
	}
}
