package k8s

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/source/k8s/internal/apitest"
)

var quiet = slog.New(slog.DiscardHandler)

// A heard is what a watcher tells.
type heard struct {
	*testing.T
	mu    sync.Mutex
	has   map[string]string
	times map[string]int
	ready chan struct{}
}

// listen runs a watcher until the test ends.
func listen(t *testing.T, client kubernetes.Interface, o Options) *heard {
	t.Helper()
	h := &heard{T: t, has: map[string]string{}, times: map[string]int{}, ready: make(chan struct{})}
	o.Log, o.Every = quiet, time.Millisecond
	w, err := New(client, func(cluster string, all []adminapi.Endpoint) {
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
	running.Go(func() { w.Run(ctx, func() { close(h.ready) }) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return h
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
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-time.After(2 * time.Millisecond) {
		var times int
		if got, times = h.get(cluster); got == want && times > 0 {
			return
		}
	}
	h.Fatalf("%s has %q, want %q", cluster, got, want)
}

func clientOf(t *testing.T, s *apitest.Server) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var mapped = Options{Mappings: []Mapping{{"backend", Service{"ns", "b", "http"}}, {"none", Service{"ns", "x", ""}}}}

// With client-go's own stand-in for an API server: slices come, change and go.
func TestFakeClientset(t *testing.T) {
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
}

// An API server that is away, a watch that is cut off, and one that is told 410 Gone change nothing by themselves; what went
// meanwhile goes when the server is back. So it is with API servers that list by a watch, and with those that do not.
func TestWatchThatEnds(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(map[bool]string{false: "lists by a watch", true: "lists"}[old], func(t *testing.T) {
			t.Parallel()
			s := apitest.Start(t)
			s.Old = old
			s.Put(slice("s", "http:80", "10.0.0.1"))
			s.Put(slice("t", "http:80", "10.0.0.2"))
			h := listen(t, clientOf(t, s), mapped)
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

			_, before := h.get("backend")
			s.Down(true)
			s.Delete("ns", "s")
			s.Compact()
			<-time.After(100 * time.Millisecond)
			if got, times := h.get("backend"); times != before {
				t.Errorf("while the server is away: %s", got)
			}
			s.Down(false)
			h.gets("backend", "10.0.0.2:80, 10.0.0.4:80")
			s.Compact() // 410 in the middle of a watch
			s.Put(slice("s", "http:80", "10.0.0.5"))
			h.gets("backend", "10.0.0.2:80, 10.0.0.4:80, 10.0.0.5:80")
			if _, times := h.get("none"); times != 1 {
				t.Errorf("a cluster without endpoints was told %d times", times)
			}
		})
	}
}

// Nothing is told before all is known; a change that changes nothing of a cluster tells nothing.
func TestTellsWhatIsNew(t *testing.T) {
	s := apitest.Start(t)
	s.Down(true)
	h := listen(t, clientOf(t, s), mapped)
	<-time.After(20 * time.Millisecond)
	select {
	case <-h.ready:
		t.Fatal("ready while the API server is away")
	default:
	}
	s.Down(false)
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
}

// All services that a selector selects, each port a cluster; what is no more is empty.
func TestAll(t *testing.T) {
	s := apitest.Start(t)
	one := slice("s", "http:80 grpc:81 udp:53", "10.0.0.1")
	one.Labels["mesh"] = "yes"
	s.Put(one)
	other := slice("o", ":80", "10.0.0.2")
	other.Labels[discovery.LabelServiceName], other.Labels["mesh"] = "o", "yes"
	s.Put(other)
	s.Put(slice("unselected", "http:80", "10.0.0.3"))
	h := listen(t, clientOf(t, s), Options{All: true, Selector: "mesh=yes", Mappings: []Mapping{{"backend", Service{"ns", "o", ""}}}})
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
