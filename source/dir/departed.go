package dir

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/xds"
)

// Clients that did not accept the newest configuration may hold recently removed resources. The store
// remembers these for as long, but forgets them when the program ends.
const (
	rememberTime = 5 * time.Minute
	maxDeparted  = 16384 // resources; above it, the oldest are forgotten
)

// departed has the recently removed resources. The zero value is empty.
type departed map[resourceKey]removedResource

type resourceKey struct{ url, name string }

type removedResource struct {
	Loaded
	at time.Time
}

// after returns the recently removed resources once next replaces was.
func (d departed) after(now time.Time, was, next groupContent) departed {
	out := departed{}
	for at, g := range d {
		if c := next.types[at.url]; now.Sub(g.at) <= rememberTime && (c == nil || c.at[at.name].Resource == nil) {
			out[at] = g
		}
	}
	for url, c := range was.types {
		for _, name := range c.gone(next.types[url]) {
			out[resourceKey{url, name}] = removedResource{c.at[name], now}
		}
	}
	if more := len(out) - maxDeparted; more > 0 {
		oldest := slices.SortedFunc(maps.Keys(out), func(a, b resourceKey) int { return out[a].at.Compare(out[b].at) })
		for _, at := range oldest[:more] {
			delete(out, at)
		}
	}
	return out
}

// stored returns the recently removed resources in the form that is stored on disk.
func (d departed) stored() (all []lastgood.Type) {
	names := slices.SortedFunc(maps.Keys(d), func(a, b resourceKey) int {
		return strings.Compare(a.url+" "+a.name, b.url+" "+b.name)
	})
	for _, at := range names {
		if n := len(all); n == 0 || all[n-1].URL != at.url {
			all = append(all, lastgood.Type{Type: xds.TypeOf(at.url)})
		}
		t := &all[len(all)-1]
		t.Resources = append(t.Resources, d[at].stored())
	}
	return all
}

// addTo returns w plus the recently removed resources.
func (d departed) addTo(w groupContent) groupContent {
	if len(d) == 0 {
		return w
	}
	before := groupContent{files: w.files, types: map[string]*typeContent{}}
	for _, c := range w.types {
		for _, l := range c.at {
			_ = before.add(l) // its name is free, because l is in w
		}
	}
	for _, g := range d {
		_ = before.add(g.Loaded) // if the name was taken since, the removed resource is left out
	}
	return before
}
