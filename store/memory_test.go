package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// 10,000 commits with 1,000 idle watches grow the heap by at most 10 %: no old body stays in memory, and the
// log is bounded.
func TestMemory(t *testing.T) {
	body := func(i int) *xds.Resource { return res(fmt.Sprint("n", i%2000), fmt.Sprintf("%08192d", i)) }
	now := time.Now()
	st := New(WithClock(func() time.Time { return now }))
	watches := make([]*Watch, 1000)
	for i := range 2000 {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, body(i))...) })
		if w := i / 2; i%2 == 0 { // each at another commit
			watches[w] = watchtest.Open(t, st, nil)
			if w%4 > 0 {
				watches[w].Next() // some never ask
			}
			watches[w].Interested(xds.Cluster, w%4 == 1, []string{fmt.Sprint("n", i)}, nil)
		}
	}
	before := heap()
	for i := range 10_000 {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, body(2000+i))...) })
		if i%1000 == 0 {
			st.Snapshot()
		}
	}
	after := heap()
	t.Logf("heap %d → %d KiB", before>>10, after>>10)
	if after > before+before/10 || after > before+maxPast*8192*5/4 {
		t.Errorf("the heap grew from %d to %d KiB", before>>10, after>>10)
	}
	// Tables of the last minutes are dropped after that time.
	if n := len(watches[0].Recent(xds.Cluster)); n != maxPast {
		t.Errorf("%d recent tables", n)
	}
	now = now.Add(pastTime + 1)
	if n := len(watches[0].Recent(xds.Cluster)); n != 0 {
		t.Errorf("%d recent tables after %v", n, pastTime)
	}
	later := heap()
	t.Logf("five minutes later %d KiB", later>>10)
	if later > after-maxPast*8192*9/10 {
		t.Errorf("the heap shrank from %d to %d KiB, less than the bodies of %d resources", after>>10, later>>10, maxPast)
	}
	for _, w := range watches {
		w.Close()
	}
}

// A stream with 100 names that others also have costs less than 3 KB.
func TestMemoryOfInterest(t *testing.T) {
	if n := interestBytes(t, 1000, 100, 100); n > 3000 {
		t.Errorf("%d bytes per stream", n)
	}
}

// interestBytes returns the memory of one of several streams that subscribe to names. The names are taken from
// a pool of the given size.
func interestBytes(t testing.TB, streams, names, of int) int {
	st := New()
	all := make([]string, of)
	for i := range all {
		all[i] = fmt.Sprint("outbound|8080||service-", i, ".example.svc.cluster.local")
	}
	watches := make([]*Watch, streams)
	before := heap()
	for i := range watches {
		watches[i] = watchtest.Open(t, st, nil)
		mine := make([]string, names)
		for j := range mine {
			mine[j] = all[(i*names+j)%of]
		}
		watches[i].Interested(xds.Endpoint, false, mine, nil)
	}
	n := (heap() - before) / streams
	runtime.KeepAlive(all)
	for _, w := range watches {
		w.Close()
	}
	return n
}
