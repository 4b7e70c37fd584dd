package store

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

// An index finds the watches of a group that are interested in a name. An index is safe for
// concurrent use, and holds its lock for one batch of names at a time.
//
// An index stores names as 64-bit hashes, which need little memory and do not keep the memory of a
// request in use. If two names have the same hash, a watch may get an unneeded signal.
type index struct {
	mu      sync.Mutex
	wanted  map[uint64]*set
	watches []*Watch // by id; nil: the id is free
	free    []uint32
}

// batch is how many names or watches are handled before the lock is released.
const batch = 256

var seed = maphash.MakeSeed()

// A key is the hash of a name of a type. The wildcard is a name, too: each change of any name of
// the type touches the wildcard.
func key(typ uint64, name string) uint64 { return typ ^ maphash.String(seed, name) }

func typeKey(url string) uint64 { return bits.RotateLeft64(maphash.String(seed, url), 32) }

// enter assigns an id to a watch.
func (x *index) enter(w *Watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.free) - 1; n >= 0 {
		w.id, x.free = x.free[n], x.free[:n]
		x.watches[w.id] = w
		return
	}
	w.id = uint32(len(x.watches))
	x.watches = append(x.watches, w)
}

// leave frees the id of a watch. Its keys were removed before.
func (x *index) leave(w *Watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watches[w.id] = nil
	x.free = append(x.free, w.id)
}

// add adds keys of a watch and returns those that are new.
func (x *index) add(w *Watch, keys []uint64) []uint64 {
	fresh := keys[:0]
	for part := range slices.Chunk(keys, batch) {
		x.mu.Lock()
		for _, k := range part {
			s := x.wanted[k]
			if s == nil {
				if x.wanted == nil {
					x.wanted = map[uint64]*set{}
				}
				s = &set{}
				x.wanted[k] = s
			}
			if s.add(w.id, len(x.watches)) {
				fresh = append(fresh, k)
			}
		}
		x.mu.Unlock()
	}
	return fresh
}

// remove removes keys of a watch and returns how many of them it had.
func (x *index) remove(w *Watch, keys []uint64) (n int) {
	for part := range slices.Chunk(keys, batch) {
		x.mu.Lock()
		for _, k := range part {
			s := x.wanted[k]
			if s == nil || !s.remove(w.id) {
				continue
			}
			n++
			if s.n == 0 {
				delete(x.wanted, k)
			}
		}
		x.mu.Unlock()
	}
	return n
}

// keep returns the given keys that the index has for the watch.
func (x *index) keep(w *Watch, keys []uint64) []uint64 {
	kept := keys[:0]
	for part := range slices.Chunk(keys, batch) {
		x.mu.Lock()
		for _, k := range part {
			if s := x.wanted[k]; s != nil && s.has(w.id) {
				kept = append(kept, k)
			}
		}
		x.mu.Unlock()
	}
	return kept
}

// touched returns the ids of the watches that are interested in the names.
func (x *index) touched(all []xds.Names) idBits {
	var ids idBits
	for _, names := range all {
		for url, names := range names {
			typ := typeKey(url)
			x.mu.Lock()
			x.wanted[key(typ, xds.Wildcard)].appendTo(&ids)
			x.mu.Unlock()
			for part := range slices.Chunk(names, batch) {
				x.mu.Lock()
				for _, name := range part {
					x.wanted[key(typ, name)].appendTo(&ids)
				}
				x.mu.Unlock()
			}
		}
	}
	return ids
}

// all returns the ids of all watches, and possibly of free ids.
func (x *index) all() idBits {
	x.mu.Lock()
	defer x.mu.Unlock()
	ids := make(idBits, (len(x.watches)+31)/32)
	for i := range ids {
		ids[i] = 1<<32 - 1
	}
	return ids
}

// open yields the watches with these ids in batches, which may be empty. It holds no lock while the caller uses them.
func (x *index) open(ids idBits) iter.Seq[[]*Watch] {
	return func(yield func([]*Watch) bool) {
		some := make([]*Watch, 0, batch)
		for from := 0; from < len(ids); from += batch / 32 {
			x.mu.Lock()
			for id := range ids[from:min(from+batch/32, len(ids))].all() {
				id += uint32(from) * 32
				if int(id) < len(x.watches) && x.watches[id] != nil {
					some = append(some, x.watches[id])
				}
			}
			x.mu.Unlock()
			if !yield(some) {
				return
			}
			some = some[:0]
		}
	}
}
