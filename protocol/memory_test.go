package protocol_test

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/worlds"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A stream of the memory test: a session, and whether its client answers.
type memoryStream struct {
	*protocol.Session
	variant xds.Variant
	stuck   bool
	names   map[string][]string
}

// wake does the same as a server after a change: it updates the session, sends responses, passes on
// the answers, and releases the view.
func (m *memoryStream) wake(view xds.View, touched []xds.Names, now time.Time) (sent int) {
	m.Advance(now)
	m.Change(view, touched)
	for again := true; again; {
		again = false
		var answers []xds.Request
		for r := range m.Responses() {
			sent++
			answers = append(answers, xds.Request{Type: r.Type, Nonce: r.Nonce, Version: r.Version, Names: m.names[r.Type.URL]})
		}
		for _, a := range answers {
			if m.stuck {
				continue
			}
			if m.variant == xds.Delta {
				a.Names, a.Version = nil, ""
			}
			again = true
			if err := m.Receive(a); err != nil {
				panic(err)
			}
		}
	}
	for range m.Events() {
	}
	for range m.Interests() {
	}
	if m.Err() != nil { // the stream ends, and the client comes back
		m.open(view, now)
		return sent
	}
	m.Release()
	return sent
}

// open begins a stream. A stuck stream subscribes to all clusters.
func (m *memoryStream) open(view xds.View, now time.Time) {
	m.Session = protocol.NewSession(m.variant, nil, view, protocol.Options{})
	m.Advance(now)
	if m.stuck {
		m.subscribe(view, xds.Cluster, xds.Wildcard)
	}
}

func (m *memoryStream) subscribe(view xds.View, t *xds.Type, names ...string) {
	m.Change(view, []xds.Names{})
	req := xds.Request{Type: t, Names: names}
	if m.variant == xds.Delta {
		req.Names, req.Subscribe = nil, names
	}
	m.names[t.URL] = names
	if err := m.Receive(req); err != nil {
		panic(err)
	}
}

func liveHeap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// The memory test of the design: "10,000 commits with 1,000 idle named and 10 stuck streams grow
// the heap by 10 % at most". Every body is replaced several times, so a reference to an old body
// would show.
func TestMemory(t *testing.T) {
	if worlds.RaceEnabled {
		t.Skip("slow, and nothing here is concurrent")
	}
	t.Run("sent once", func(t *testing.T) { memory(t, 0, 0) })
	if testing.Short() {
		return
	}
	// Each stuck stream keeps the stamps of the tables it was sent, which differ between streams.
	// These lists are full after 340 s, and then the streams begin anew. So they are equally full after
	// 320 s and after 1,000 s.
	t.Run("sent anew every 5 s", func(t *testing.T) { memory(t, 100*time.Millisecond, 3200) })
}

// memory compares the heap after `warm` commits and after all commits. The time between two commits
// is `tick`.
func memory(t *testing.T, tick time.Duration, warm int) {
	const (
		resources, rare = 1000, 10 // clusters; the first few change seldom
		endpoints       = 1000
		commits         = 10_000
		idle, stuck     = 1000, 10
	)
	body := func(i, gen int) []byte {
		return append(bytes.Repeat([]byte{byte(i)}, 1000), fmt.Sprintf("%d/%d", i, gen)...)
	}
	cluster := func(i, gen int) *xds.Resource {
		r := xds.NewResource(xds.Cluster, fmt.Sprint("cluster-", i), body(i, gen))
		r.Refs = []xds.Ref{}
		return r
	}
	table := func(n int, f func(i int) *xds.Resource) *xds.Table {
		var rs []*xds.Resource
		for i := range n {
			rs = append(rs, f(i))
		}
		return with(new(xds.Table), rs)
	}
	view := xds.Tables{
		xds.Cluster.URL: table(resources, func(i int) *xds.Resource { return cluster(i, 0) }),
		xds.Endpoint.URL: table(endpoints, func(i int) *xds.Resource {
			return xds.NewResource(xds.Endpoint, fmt.Sprint("endpoint-", i), body(i, 0))
		}),
	}

	now := time.Unix(1_700_000_000, 0)
	var streams []*memoryStream
	byName := map[string][]*memoryStream{} // streams to wake for a cluster
	open := func(stuck bool, v xds.Variant) *memoryStream {
		m := &memoryStream{variant: v, stuck: stuck, names: map[string][]string{}}
		m.open(view, now)
		streams = append(streams, m)
		return m
	}
	for i := range idle {
		m := open(false, xds.Variant(i%2))
		var names []string
		for k := range 20 {
			names = append(names, fmt.Sprint("endpoint-", (i*7+k*13)%endpoints))
		}
		m.subscribe(view, xds.Endpoint, names...)
		c := fmt.Sprint("cluster-", i%rare)
		m.subscribe(view, xds.Cluster, c)
		byName[c] = append(byName[c], m)
		if m.wake(view, []xds.Names{}, now) == 0 {
			t.Fatal("an idle stream was sent nothing")
		}
	}
	var deaf []*memoryStream
	for i := range stuck {
		m := open(true, xds.Variant(i%2))
		if m.wake(view, []xds.Names{}, now) == 0 {
			t.Fatal("a stuck stream was sent nothing")
		}
		deaf = append(deaf, m)
	}

	var before uint64
	woken := 0
	for n := range commits {
		if n == warm {
			before = liveHeap()
		}
		i := rare + n%(resources-rare)
		if n%(commits/(3*rare)) == 0 { // 30 changes of clusters that the idle streams hold
			i = n / (commits / (3 * rare)) % rare
		}
		r := cluster(i, n+1)
		next := maps.Clone(view)
		next[xds.Cluster.URL] = with(view.Table(xds.Cluster), []*xds.Resource{r})
		view = next
		touched := []xds.Names{{xds.Cluster.URL: {r.Name}}}
		now = now.Add(tick)
		for _, m := range byName[r.Name] {
			m.wake(view, touched, now)
		}
		for k, m := range deaf {
			m.wake(view, touched, now.Add(time.Duration(k)*50*tick))
		}
		woken += len(byName[r.Name]) + len(deaf)
	}
	after := liveHeap()
	grown := 100 * (float64(after) - float64(before)) / float64(before)
	t.Logf("live heap %d KiB before, %d KiB after %d commits (%+.1f %%); streams woken %d times", before>>10, after>>10, commits, grown, woken)
	if grown > 10 {
		t.Errorf("the live heap grew by %.1f %%", grown)
	}
	runtime.KeepAlive(view)
	runtime.KeepAlive(streams)
}

// SAFE-1: the memory of a stream with as many unanswered responses as are possible, each of one
// name.
func TestMemoryOfUnansweredResponses(t *testing.T) {
	if worlds.RaceEnabled {
		t.Skip("slow, and nothing here is concurrent")
	}
	const streams, responses = 200, 68
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		now := time.Unix(1_700_000_000, 0)
		named := func(gen int) *xds.Resource {
			r := xds.NewResource(xds.Endpoint, "a", fmt.Append(nil, gen))
			r.Refs = []xds.Ref{}
			return r
		}
		view := xds.Tables{xds.Endpoint.URL: with(new(xds.Table), []*xds.Resource{named(0)})}
		var all []*memoryStream
		for range streams {
			m := &memoryStream{variant: v, names: map[string][]string{}}
			m.open(view, now)
			m.subscribe(view, xds.Endpoint, "a")
			m.wake(view, []xds.Names{}, now) // answered
			m.stuck = true
			all = append(all, m)
		}
		before := liveHeap()
		for gen := range responses {
			view = xds.Tables{xds.Endpoint.URL: with(view.Table(xds.Endpoint), []*xds.Resource{named(gen + 1)})}
			now = now.Add(5 * time.Second)
			for _, m := range all {
				if m.wake(view, []xds.Names{{xds.Endpoint.URL: {"a"}}}, now) != 1 {
					t.Fatal("SAFE-1: no response")
				}
			}
		}
		each := (liveHeap() - before) / streams
		t.Logf("%v: %d bytes for %d unanswered responses", v, each, responses)
		if each > 40<<10 {
			t.Errorf("SAFE-1 %v: %d bytes for %d unanswered responses", v, each, responses)
		}
		runtime.KeepAlive(all)
	}
}
