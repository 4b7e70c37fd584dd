package quarantine

import (
	"container/list"
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

const (
	maxIdle      = 1000     // resources that no stream is shown
	maxIdleBytes = 16 << 20 // bytes of them
)

// replacements are resources that are served in place of refused ones. They are kept for a while after
// their last use: a client that reconnects has the same version and refuses the same one, when the store no
// longer has the former. The zero value is empty.
type replacements struct {
	mu    sync.Mutex // held for memory access only
	all   map[replacementKey]*replacement
	idle  list.List // of *replacement that no stream is shown, oldest first
	bytes int       // of idle
}

// A replacementKey is a name in a scope. The cache has the version that was shown last.
type replacementKey struct{ scope, url, name string }

type replacement struct {
	*xds.Resource
	key   replacementKey
	shown int
	at    *list.Element // position in idle
}

func (k *replacements) hold(scope string, r *xds.Resource) {
	if r == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := replacementKey{scope, r.Type.URL, r.Name}
	is := k.all[key]
	if is == nil {
		if k.all == nil {
			k.all = map[replacementKey]*replacement{}
		}
		is = &replacement{key: key}
		k.all[key] = is
	}
	is.shown++
	if is.at != nil {
		k.drop(is)
	}
	is.Resource = r
}

// drop removes a resource from idle.
func (k *replacements) drop(is *replacement) {
	k.idle.Remove(is.at)
	is.at = nil
	k.bytes -= len(is.Body)
}

// release notes that a stream is no longer shown a resource.
func (k *replacements) release(scope string, r *xds.Resource) {
	if r == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.all[replacementKey{scope, r.Type.URL, r.Name}]
	if is == nil {
		return
	}
	is.shown--
	if is.shown > 0 {
		return
	}
	is.at = k.idle.PushBack(is)
	k.bytes += len(is.Body)
	for k.idle.Len() > maxIdle || k.bytes > maxIdleBytes {
		oldest := k.idle.Front().Value.(*replacement)
		k.drop(oldest)
		delete(k.all, oldest.key)
	}
}

// find returns the resource that was shown last under a name; nil if it is not cached.
func (k *replacements) find(scope string, t *xds.Type, name string) *xds.Resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	if is := k.all[replacementKey{scope, t.URL, name}]; is != nil {
		return is.Resource
	}
	return nil
}
