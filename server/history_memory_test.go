package server

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A remembered session keeps a history, like a stream.
type remembered struct {
	*protocol.Session
	*streamHistory
	stuck bool
	names []string
}

// wake gives the session a view, sends its responses, and takes the answers.
func (r *remembered) wake(t *testing.T, view xds.View, touched []xds.Names, now time.Time) {
	r.Advance(now)
	r.Change(view, touched)
	for again := true; again; {
		again = false
		for i := range r.Interests() {
			if r.streamHistory != nil {
				r.interested(i)
			}
		}
		sent := map[string]*xds.Changes{}
		var answers []xds.Request
		for m := range r.Responses() {
			sent[m.Nonce] = m.Changes
			if !r.stuck {
				answers = append(answers, xds.Request{Type: m.Type, Nonce: m.Nonce, Version: m.Version, Names: r.names})
			}
		}
		r.note(now, sent)
		for _, a := range answers {
			again = true
			if err := r.Receive(a); err != nil {
				t.Fatal(err)
			}
			r.note(now, nil)
		}
	}
	r.Release()
}

func (r *remembered) note(now time.Time, sent map[string]*xds.Changes) {
	for e := range r.Events() {
		if r.streamHistory == nil {
			continue
		}
		switch e.Kind {
		case protocol.Subscribed:
			r.subscribed(e)
		case protocol.Sent:
			r.sent(e, sent[e.Nonce])
		case protocol.Acked:
			r.acked(e)
		}
	}
}

var raceEnabled bool // by race_test.go

// The history of a stream is small, and does not grow with the number of commits.
func TestHistoryMemory(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("slow, and this test is not concurrent")
	}
	const idle, stuck, commits, size = 1000, 10, 10_000, 1000
	cluster := func(i, gen int) *xds.Resource {
		r := res(fmt.Sprint("cluster-", i), string(append(bytes.Repeat([]byte{'x'}, 1000), fmt.Sprint(i, gen)...)))
		r.Refs = []xds.Ref{}
		return r
	}
	var all []*xds.Resource
	for i := range size {
		all = append(all, cluster(i, 0))
	}
	run := func(keep bool) (perStream [3]int, after uint64) {
		table := with(new(xds.Table), all)
		view := xds.Tables{xds.Cluster.URL: table}
		now := time.Unix(1_700_000_000, 0)
		memory := newSentHistory(1000)
		open := func(i int, stuck bool, names ...string) *remembered {
			r := &remembered{Session: protocol.NewSession(xds.SotW, nil, view, protocol.Options{}), stuck: stuck, names: names}
			if keep {
				r.streamHistory = &streamHistory{history: memory, node: fmt.Sprint("node-", i)}
			}
			r.Advance(now)
			if err := r.Receive(xds.Request{Type: xds.Cluster, Names: names}); err != nil {
				t.Fatal(err)
			}
			r.wake(t, view, []xds.Names{}, now)
			return r
		}
		streams := make([]*remembered, idle)
		arrive := func() {
			for i := range streams {
				streams[i] = open(i, false, fmt.Sprint("cluster-", i%10))
			}
		}
		// Measure the memory that is freed when the history is forgotten. Memory of earlier tests
		// may be freed at any time, so nothing else happens between the two measurements.
		for n := range perStream {
			arrive()
			kept := inUse().HeapAlloc
			for _, r := range streams {
				r.streamHistory = nil
			}
			memory = newSentHistory(1000)
			perStream[n] = (int(kept) - int(inUse().HeapAlloc)) / idle
		}
		slices.Sort(perStream[:])
		arrive()
		var deaf []*remembered
		for i := range stuck {
			deaf = append(deaf, open(idle+i, true))
		}
		for n := range commits {
			r := cluster(10+n%(size-10), n+1)
			view = xds.Tables{xds.Cluster.URL: with(view.Table(xds.Cluster), []*xds.Resource{r})}
			now = now.Add(10 * time.Millisecond)
			for _, d := range deaf {
				d.wake(t, view, []xds.Names{{xds.Cluster.URL: {r.Name}}}, now)
			}
			if n%10 == 0 { // another stream begins, and stays open
				c := streams[n/10]
				if keep {
					c.end(now)
				}
				streams[n/10] = open(n/10, false, fmt.Sprint("cluster-", n/10%10))
			}
		}
		after = inUse().HeapAlloc
		runtime.KeepAlive(streams)
		runtime.KeepAlive(memory)
		return perStream, after
	}
	nothing, bare := run(false)
	cost, after := run(true)
	t.Logf("the history takes %d B for a stream and type (%d B if it is empty); live heap after %d commits %d KiB with the history, %d KiB without", cost, nothing, commits, after>>10, bare>>10)
	if cost[1] < 100 || cost[1] > 400 {
		t.Errorf("the history takes %d B for a stream and type", cost[1])
	}
	if more := (int(after) - int(bare)) / (idle + stuck); more > 500 {
		t.Errorf("the history grows the live heap from %d KiB to %d KiB: %d B for each stream", bare>>10, after>>10, more)
	}
}
