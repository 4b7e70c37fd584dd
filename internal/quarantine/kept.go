package quarantine

import (
	"container/list"
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

const (
	maxIdle      = 1000     // resources that no stream is shown any more
	maxIdleBytes = 16 << 20 // the same
)

// kept are resources that are shown instead of others. They are remembered for a while after: a client
// that comes back has the same, and refuses the same, when the source has long forgotten what was before. The zero
// value remembers nothing.
type kept struct {
	mu    sync.Mutex // held for memory only
	all   map[keptKey]*keeping
	idle  list.List // of *keeping that nobody is shown, the oldest first
	bytes int       // of these
}

// A keptKey is a name, as those see it that see the same. What was last shown under it is remembered.
type keptKey struct{ scope, url, name string }

type keeping struct {
	*xds.Resource
	key   keptKey
	shown int
	at    *list.Element // in idle
}

func (k *kept) hold(scope string, r *xds.Resource) {
	if r == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := keptKey{scope, r.Type.URL, r.Name}
	is := k.all[key]
	if is == nil {
		if k.all == nil {
			k.all = map[keptKey]*keeping{}
		}
		is = &keeping{key: key}
		k.all[key] = is
	}
	if is.shown++; is.at != nil {
		k.drop(is)
	}
	is.Resource = r
}

// drop takes a resource from those that nobody is shown.
func (k *kept) drop(is *keeping) {
	k.idle.Remove(is.at)
	is.at = nil
	k.bytes -= len(is.Body)
}

// release says that a stream is not shown a resource any more.
func (k *kept) release(scope string, r *xds.Resource) {
	if r == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.all[keptKey{scope, r.Type.URL, r.Name}]
	if is == nil {
		return
	}
	if is.shown--; is.shown > 0 {
		return
	}
	is.at = k.idle.PushBack(is)
	k.bytes += len(is.Body)
	for k.idle.Len() > maxIdle || k.bytes > maxIdleBytes {
		oldest := k.idle.Front().Value.(*keeping)
		k.drop(oldest)
		delete(k.all, oldest.key)
	}
}

// find returns what was last shown under a name, nil if it is not remembered.
func (k *kept) find(scope string, t *xds.Type, name string) *xds.Resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	if is := k.all[keptKey{scope, t.URL, name}]; is != nil {
		return is.Resource
	}
	return nil
}
