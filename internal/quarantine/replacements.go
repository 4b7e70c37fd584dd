package quarantine

import (
	"container/list"
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

const (
	maxIdle      = 1000     // number of idle resources: no stream is shown them
	maxIdleBytes = 16 << 20 // bytes of idle resources
)

// replacements has the resources that are served in place of refused ones. It keeps them for a while
// after their last use, for clients that reconnect. Such a client has the same old version and refuses
// the same new version, but the store no longer has the old one. The zero value is empty.
type replacements struct {
	mu    sync.Mutex // held for memory access only
	all   map[replacementKey]*replacement
	idle  list.List // of *replacement: resources that no stream is shown, oldest first
	bytes int       // total size of idle
}

// A replacementKey is a resource name in a scope. The cache has only the last shown version for each key.
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

// release notes that one stream less is shown a resource.
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

// find returns the last shown resource with a name; nil if the cache does not have it.
func (k *replacements) find(scope string, t *xds.Type, name string) *xds.Resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	if is := k.all[replacementKey{scope, t.URL, name}]; is != nil {
		return is.Resource
	}
	return nil
}
