package client

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A nameState is the state of one name of a type. Each subscribed name has a nameState, and so
// has each name that the server still counts as subscribed, each resource held, and some refused
// resources. Terms: see doc.go.
type nameState struct {
	asked bool // subscribed
	told  bool // the server knows that the name is subscribed

	foreign bool          // the server does not know that the resource is held
	doubted bool          // the application may not be able to use the resource held: see Client.Doubt
	stray   bool          // kept only because of the fault
	gone    goneness      // why the name finds nothing
	place   int32         // index in typeState.rows, if the last response had the name
	timer   int32         // index in Client.timers plus 1, of the TTL if a resource is held, else of the timeout; 0: no timer
	round   uint64        // the last response with the name, and how often it has the name: see intake.seen
	res     *xds.Resource // held under this name; nil: none
	version string        // SotW: version_info of the response with res
	fault   *fault        // why the newest state from the server cannot be used; nil: it can be used
	since   moment        // when res changed
}

// A moment is a time in ns since 1970; 0: no time. Its size is a third of that of time.Time.
type moment int64

func momentOf(t time.Time) moment {
	if t.IsZero() {
		return 0
	}
	return moment(t.UnixNano())
}

func (m moment) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(m))
}

// A goneness is the reason why a name finds nothing.
type goneness uint8

const (
	unheard goneness = iota // the server sent nothing about the name
	absence                 // the name does not exist
	overdue                 // timeout; with Options.Transient
)

// A fault is the reason why the newest state of a name cannot be used.
type fault struct {
	refused bool     // the client refused the state; otherwise the server reported an error
	of      string   // name of the resource that the client refused, perhaps before the server reported an error; "": none
	by      []string // the names that find the refused resource and get the events of the fault
	err     error
	text    string   // text of err
	last    string   // text of the last error reported by the server; "": none
	heard   []string // names that got the event for this last error
	version string   // the refused version
	at      time.Time
}

// kind returns the kind of the event that reports the fault.
func (f *fault) kind() EventKind {
	if f.refused {
		return Refused
	}
	return Errored
}

// maxStrays limits the refused resources of a type that the client remembers without a subscription
// to their own names. A server could send any number of bad resources.
const maxStrays = 1000

// name returns the state of a name, and creates it if needed.
func (w *typeState) name(name string) *nameState {
	n := w.names[name]
	if n == nil {
		n = &nameState{}
		w.names[name] = n
		if name == xds.Wildcard {
			w.all = n
		}
	}
	return n
}

// tidy forgets a name if nothing has to be recorded for it any more.
func (w *typeState) tidy(name string, n *nameState) {
	nobodys := !n.asked && !n.told && n.res == nil
	stray := nobodys && n.fault != nil && len(n.fault.by) > 0
	switch {
	case n.stray && !stray:
		n.stray = false
		w.strays--
	case stray && !n.stray && w.strays < maxStrays:
		n.stray = true
		w.strays++
	}
	if nobodys && !n.stray {
		if n.fault != nil {
			for _, s := range n.fault.by {
				w.unspoil(s, name)
			}
		}
		delete(w.names, name)
		if name == xds.Wildcard {
			w.all = nil
		}
	}
}

// shows reports whether the client holds or has refused a resource with this name. If the next full
// state lacks the name, the resource is removed.
func (n *nameState) shows() bool { return n.res != nil || n.fault != nil && n.fault.of != "" }

// lacks reports whether the last full state lacks the name.
func (n *nameState) lacks(round uint64) bool { return n.round < round && n.shows() }

// called returns the name of a nameState for which shows is true (SotW).
func (n *nameState) called() string {
	if n.res != nil {
		return xds.CanonicalName(n.res.Name)
	}
	return n.fault.of
}

// holds reports whether a resource with the name of r is held; n may be nil.
func (n *nameState) holds(r *xds.Resource) bool {
	return n != nil && n.res != nil && (n.res == r || n.res.Name == r.Name)
}

// has reports whether a name is known and the function `is` returns true for it.
func (w *typeState) has(name string, is func(*nameState) bool) bool {
	n := w.names[name]
	return n != nil && is(n)
}

// Filters: subscribed by the application, subscribed at the server, or either.
func isAsked(n *nameState) bool  { return n.asked }
func isTold(n *nameState) bool   { return n.told }
func isEither(n *nameState) bool { return n.asked || n.told }

// finders yields the known names that find a resource: "*", the name of the resource and, with
// delta, its aliases and its collection.
func (w *typeState) finders(name string, r *xds.Resource, yield func(string, *nameState) bool) {
	find := func(s string) bool {
		n := w.names[s]
		return n == nil || yield(s, n)
	}
	if w.all != nil && !yield(xds.Wildcard, w.all) || !find(name) || !w.delta {
		return
	}
	for s := range w.others(name, r) {
		if !find(s) {
			return
		}
	}
}

// others yields the aliases and the collection of a resource, which also find it (CLI-12). Only
// delta has these.
func (w *typeState) others(name string, r *xds.Resource) func(func(string) bool) {
	return func(yield func(string) bool) {
		var met map[string]bool // nil: a linear search is enough for a few aliases
		if len(r.Aliases) > 8 {
			met = make(map[string]bool, len(r.Aliases))
		}
		for i, a := range r.Aliases {
			switch a = xds.CanonicalName(a); {
			case a == name || a == xds.Wildcard || met[a] || met == nil && slices.Contains(r.Aliases[:i], a):
				continue
			case met != nil:
				met[a] = true
			}
			if !yield(a) {
				return
			}
		}
		if c := w.typ.Collection(name); c != "" {
			yield(c)
		}
	}
}

// covers reports whether any name finds a resource. Only names for which the function `is` returns
// true count, without the name `except`.
func (w *typeState) covers(name string, r *xds.Resource, is func(*nameState) bool, except string) (covers bool) {
	w.finders(name, r, func(s string, n *nameState) bool {
		covers = is(n) && s != except
		return !covers
	})
	return covers
}

// askers returns the asked names that find a resource.
func (w *typeState) askers(name string, r *xds.Resource) (list []string) {
	w.finders(name, r, func(s string, n *nameState) bool {
		switch {
		case !n.asked:
		case list == nil && s == xds.Wildcard:
			list = everything
		default:
			list = append(list, s)
		}
		return true
	})
	return list
}

// everything is shared. Its capacity is 1, so that append copies it.
var everything = []string{xds.Wildcard}[:1:1]

// index adds a resource to found.
func (w *typeState) index(name string, r *xds.Resource) {
	if !w.delta {
		return
	}
	for s := range w.others(name, r) {
		put(w.found, s, name)
	}
}

func put(m map[string]map[string]bool, s, name string) {
	if m[s] == nil {
		m[s] = map[string]bool{}
	}
	m[s][name] = true
}

func take(m map[string]map[string]bool, s, name string) {
	delete(m[s], name)
	if len(m[s]) == 0 {
		delete(m, s)
	}
}

// unindex removes a resource from found.
func (w *typeState) unindex(name string, r *xds.Resource) {
	if !w.delta {
		return
	}
	for s := range w.others(name, r) {
		take(w.found, s, name)
	}
}

// spoil records that the name s finds the refused resource with the given name.
func (w *typeState) spoil(s, name string) {
	if s != name && s != xds.Wildcard {
		put(w.spoiled, s, name)
	}
}

// unspoil undoes spoil.
func (w *typeState) unspoil(s, name string) { take(w.spoiled, s, name) }

// reached reports whether the name s got an event of a fault, for the present or an earlier error;
// f may be nil.
func (f *fault) reached(s string) bool {
	return f != nil && (slices.Contains(f.by, s) || slices.Contains(f.heard, s))
}

// knows reports whether the name s gets the events of a fault.
func (w *typeState) knows(s string, f *fault) bool {
	if s == f.of || s == xds.Wildcard {
		return slices.Contains(f.by, s)
	}
	return w.spoiled[s][f.of]
}

// told returns the asked names that get the events of a fault.
func (w *typeState) told(f *fault) []string {
	return slices.DeleteFunc(slices.Clone(f.by), func(s string) bool { return !w.has(s, isAsked) })
}

// part records that the name s no longer finds the refused resource x.
func (w *typeState) part(s, x string) {
	if f := w.names[x].fault; f != nil {
		f.by, f.heard = without(f.by, s), without(f.heard, s)
		w.unspoil(s, x)
	}
}

// without returns a copy of the list without some names.
func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(names, s) })
}

// finds reports whether a name finds held or refused resources as an alias or a collection.
func (w *typeState) finds(name string) bool { return len(w.found[name])+len(w.spoiled[name]) > 0 }

// finding returns the names of held resources that a name finds as an alias or a collection,
// sorted.
func (w *typeState) finding(name string) []string {
	return slices.Sorted(maps.Keys(w.found[name]))
}

// spoils returns the names of refused resources that a name finds as an alias or a collection,
// sorted.
func (w *typeState) spoils(name string) []string {
	return slices.Sorted(maps.Keys(w.spoiled[name]))
}

// tell records that a request has told the server whether the client subscribes to a name.
func (w *typeState) tell(name string, n *nameState) {
	n.told = n.asked
	delete(w.changed, name)
}

// shed drops a name that is no longer asked, and the resources that only this name found.
func (c *Client) shed(w *typeState, name string) {
	lets := func(s string) {
		n := w.names[s]
		if n == nil {
			return
		}
		if n.res != nil && !w.covers(s, n.res, isEither, "") {
			w.unindex(s, n.res)
			c.keep(n, nil)
		}
		if n.res == nil && !isEither(n) {
			c.stop(n)
			n.gone = unheard
		}
		w.tidy(s, n)
	}
	if name == xds.Wildcard {
		w.rows, w.listed = nil, false
		for s := range w.names {
			w.part(name, s)
			lets(s)
		}
	}
	for _, s := range w.spoils(name) {
		w.part(name, s)
		lets(s)
	}
	for _, s := range w.finding(name) {
		w.part(name, s)
		lets(s)
	}
	if w.names[name] != nil {
		w.part(name, name)
	}
	lets(name)
}
