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
			if r.due(readMemory()) {
				debug.FreeOSMemory()
				r.returned(readMemory())
			}
		}
	}
}

// returnEvery is the time between two looks, and the time without a collection after which the program is idle.
const returnEvery = 5 * time.Second

// A memoryUse is what the runtime has from the system, in bytes, and the number of collections so far.
type memoryUse struct{ bytes, collections uint64 }

// A memoryReturn decides when to collect. The zero value has returned nothing yet.
type memoryReturn struct {
	after memoryUse // the last return
	last  uint64    // collections at the last look
}

// due reports whether the program may have memory that it does not need: none was collected since the last look, but
// before that the program was busy, or its memory has grown by a fifth since the last return.
func (r *memoryReturn) due(now memoryUse) bool {
	idle := now.collections == r.last
	r.last = now.collections
	return idle && (now.collections >= r.after.collections+busy || now.bytes > r.after.bytes+r.after.bytes/5)
}

// busy is a number of collections after which the program was busy. Without work Go collects every two minutes.
const busy = 3

func (r *memoryReturn) returned(now memoryUse) { r.after, r.last = now, now.collections }

func readMemory() memoryUse {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	return memoryUse{s[0].Value.Uint64() - s[1].Value.Uint64(), s[2].Value.Uint64()}
}
