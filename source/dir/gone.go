package dir

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/xds"
)

// Clients that have not accepted the newest may have what has gone lately. A store
// remembers that for as long, which ends with the program.
const (
	goneTime = 5 * time.Minute
	mostGone = 16384 // resources; beyond it the oldest are forgotten
)

// departed is what has gone lately. The zero value is nothing.
type departed map[goneName]gone

type goneName struct{ url, name string }

type gone struct {
	Loaded
	at time.Time
}

// after returns what has gone lately when next takes the place of was.
func (d departed) after(now time.Time, was, next world) departed {
	out := departed{}
	for at, g := range d {
		if c := next.types[at.url]; now.Sub(g.at) <= goneTime && (c == nil || c.at[at.name].Resource == nil) {
			out[at] = g
		}
	}
	for url, c := range was.types {
		for _, name := range c.gone(next.types[url]) {
			out[goneName{url, name}] = gone{c.at[name], now}
		}
	}
	if more := len(out) - mostGone; more > 0 {
		oldest := slices.SortedFunc(maps.Keys(out), func(a, b goneName) int { return out[a].at.Compare(out[b].at) })
		for _, at := range oldest[:more] {
			delete(out, at)
		}
	}
	return out
}

// kept returns it as it is kept on disk.
func (d departed) kept() (all []lastgood.Type) {
	names := slices.SortedFunc(maps.Keys(d), func(a, b goneName) int {
		return strings.Compare(a.url+" "+a.name, b.url+" "+b.name)
	})
	for _, at := range names {
		if n := len(all); n == 0 || all[n-1].URL != at.url {
			all = append(all, lastgood.Type{Type: xds.TypeOf(at.url)})
		}
		t := &all[len(all)-1]
		t.Resources = append(t.Resources, d[at].kept())
	}
	return all
}

// with returns the world as it was before that had gone.
func (d departed) with(w world) world {
	if len(d) == 0 {
		return w
	}
	before := world{files: w.files, types: map[string]*content{}}
	for _, c := range w.types {
		for _, l := range c.at {
			_ = before.add(l) // it is in w, so nothing else has its name
		}
	}
	for _, g := range d {
		_ = before.add(g.Loaded) // or something else has the name since
	}
	return before
}
