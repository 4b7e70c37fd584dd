package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// returnMemory gives memory to the system when it is not needed any more, until ctx is done. After a burst of clients
// the program may be so idle that Go collects garbage only after two minutes. A second program on the machine may need
// the memory earlier (SAFE-14).
func returnMemory(ctx context.Context) {
	t := time.NewTicker(returnEvery)
	defer t.Stop()
	var r memoryReturn
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if before := readMemory(); r.due(before) {
				debug.FreeOSMemory()
				r.returned(before, readMemory())
			}
		}
	}
}

// returnEvery is the time between two looks, and the time without a collection after which the program is idle.
const returnEvery = 5 * time.Second

// A memoryUse is what the runtime has from the system, in bytes, the number of collections so far, and the number of
// goroutines, which grows and falls with connections and streams.
type memoryUse struct{ bytes, collections, goroutines uint64 }

// A memoryReturn decides when to collect. The zero value has returned nothing yet.
type memoryReturn struct {
	after memoryUse // the last return
	last  uint64    // collections at the last look
	most  uint64    // goroutines since the last return
	again bool      // another return follows the last one
}

// due reports whether the program may have memory that it does not need. It is idle: none was collected since the last
// look. And one of these holds:
//   - it was busy since the last return, or its memory has grown by a fifth
//   - a fifth of the goroutines has ended: the last return was in the middle of an attack, when the memory was needed
//   - the last return was a single one, and a sync.Pool releases at the second collection only
//   - the last return gave a fifth of the memory, and more may have ended since
func (r *memoryReturn) due(now memoryUse) bool {
	idle := now.collections == r.last
	r.last, r.most = now.collections, max(r.most, now.goroutines)
	return idle && (r.again || now.collections >= r.after.collections+busy || now.bytes > r.after.bytes+r.after.bytes/5 || now.goroutines < r.most-r.most/5)
}

// busy is a number of collections after which the program was busy. Without work Go collects every two minutes.
const busy = 3

func (r *memoryReturn) returned(before, now memoryUse) {
	gave := now.bytes < before.bytes-before.bytes/5
	*r = memoryReturn{after: now, last: now.collections, most: now.goroutines, again: gave || !r.again}
}

func readMemory() memoryUse {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(s)
	return memoryUse{s[0].Value.Uint64() - s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()}
}
