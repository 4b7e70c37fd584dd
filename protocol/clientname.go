package protocol

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A clientName is what a client knows of one name of a type. There is one for each name that
// is asked for, or that the server was told to be, for each resource held, and for some that
// were refused.
type clientName struct {
	asked bool // it is subscribed to
	told  bool // and the server was told so

	foreign bool          // the server does not know that it is held
	doubted bool          // the client is not sure any more that it can use what is held: see Client.Doubt
	stray   bool          // it is here for its fault alone
	gone    goneness      // why there is nothing
	place   int32         // in clientType.rows, if it was in the last response
	timer   int32         // its place in Client.timers, from 1. Held: of its TTL; else of its absence; 0: none runs
	round   uint64        // of the last response that had it, and how: see intake.seen
	res     *xds.Resource // held under this very name; nil: none
	version string        // SotW: version_info of the response that it came in
	fault   *fault        // what is wrong with the server's newest word; nil: nothing
	since   moment        // when it came
}

// A moment is a time in a third of the room, in ns since 1970; 0: none.
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

// A goneness says why a name finds nothing.
type goneness uint8

const (
	unheard goneness = iota // nothing was heard of it
	absence                 // it does not exist
	overdue                 // nothing was heard in time; with ClientOptions.Transient
)

// A fault is why the newest that the server said of a name cannot be used.
type fault struct {
	refused bool     // by the client; else the server reports it
	of      string   // the resource that was refused, then or before: the name; "": none was
	by      []string // the names asked or told that find it, who hear what becomes of it
	err     error
	text    string   // of err
	last    string   // text of the last error that the server reported of it; "": none
	heard   []string // who was told of that
	version string   // that was refused
	at      time.Time
}

// kind is that of the event that tells of it.
func (f *fault) kind() ClientEventKind {
	if f.refused {
		return Refused
	}
	return Errored
}

// maxStrays is of how many resources of a type it is remembered that they were refused though
// nobody asks for them by their own name. A server could invent bad ones without end.
const maxStrays = 1000

// name returns what is known of a name, and makes room for it.
func (w *clientType) name(name string) *clientName {
	n := w.names[name]
	if n == nil {
		n = &clientName{}
		w.names[name] = n
		if name == xds.Wildcard {
			w.all = n
		}
	}
	return n
}

// tidy forgets a name of which there is nothing to know.
func (w *clientType) tidy(name string, n *clientName) {
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

// shows reports whether there is something that a full state may lack: what is held, or was refused.
func (n *clientName) shows() bool { return n.res != nil || n.fault != nil && n.fault.of != "" }

// lacks reports whether a response that tells the full state lacks it.
func (n *clientName) lacks(round uint64) bool { return n.round < round && n.shows() }

// called returns the name of one that shows, in SotW.
func (n *clientName) called() string {
	if n.res != nil {
		return xds.CanonicalName(n.res.Name)
	}
	return n.fault.of
}

// holds reports whether a resource that is called like r is held under the name; n may be nil.
func (n *clientName) holds(r *xds.Resource) bool {
	return n != nil && n.res != nil && (n.res == r || n.res.Name == r.Name)
}

// has reports whether is holds for a name.
func (w *clientType) has(name string, is func(*clientName) bool) bool {
	n := w.names[name]
	return n != nil && is(n)
}

// What the client wants, and what it may be sent.
func isAsked(n *clientName) bool  { return n.asked }
func isTold(n *clientName) bool   { return n.told }
func isEither(n *clientName) bool { return n.asked || n.told }

// finders yields the names that find a resource called name, of those that are known: "*",
// its own, and with delta its aliases and its collection.
func (w *clientType) finders(name string, r *xds.Resource, yield func(string, *clientName) bool) {
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

// others yields the names besides its own and "*" that find a resource; delta only. "An alias
// is as good as the name."
func (w *clientType) others(name string, r *xds.Resource) func(func(string) bool) {
	return func(yield func(string) bool) {
		var met map[string]bool // nil: they are few
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

// covers reports whether one of the names for which is holds finds a resource, other than
// except.
func (w *clientType) covers(name string, r *xds.Resource, is func(*clientName) bool, except string) (covers bool) {
	w.finders(name, r, func(s string, n *clientName) bool {
		covers = is(n) && s != except
		return !covers
	})
	return covers
}

// askers lists the names asked that find a resource.
func (w *clientType) askers(name string, r *xds.Resource) (list []string) {
	w.finders(name, r, func(s string, n *clientName) bool {
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

// everything is shared: nothing is appended in place.
var everything = []string{xds.Wildcard}[:1:1]

// index notes a resource for the names that find it besides its own.
func (w *clientType) index(name string, r *xds.Resource) {
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

// unindex undoes that.
func (w *clientType) unindex(name string, r *xds.Resource) {
	if !w.delta {
		return
	}
	for s := range w.others(name, r) {
		take(w.found, s, name)
	}
}

// spoil notes that a name finds what was refused, called so.
func (w *clientType) spoil(s, name string) {
	if s != name && s != xds.Wildcard {
		put(w.spoiled, s, name)
	}
}

// unspoil undoes that.
func (w *clientType) unspoil(s, name string) { take(w.spoiled, s, name) }

// reached reports whether a name was told of a fault, now or before; f may be nil.
func (f *fault) reached(s string) bool {
	return f != nil && (slices.Contains(f.by, s) || slices.Contains(f.heard, s))
}

// knows reports whether a name was told of a fault.
func (w *clientType) knows(s string, f *fault) bool {
	if s == f.of || s == xds.Wildcard {
		return slices.Contains(f.by, s)
	}
	return w.spoiled[s][f.of]
}

// told lists the names asked that were told of a fault.
func (w *clientType) told(f *fault) []string {
	return slices.DeleteFunc(slices.Clone(f.by), func(s string) bool { return !w.has(s, isAsked) })
}

// part lets a name find no more what was refused, called x.
func (w *clientType) part(s, x string) {
	if f := w.names[x].fault; f != nil {
		f.by, f.heard = without(f.by, s), without(f.heard, s)
		w.unspoil(s, x)
	}
}

// without lists others than names.
func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(names, s) })
}

// finds reports whether a name finds others, be it that they are refused.
func (w *clientType) finds(name string) bool { return len(w.found[name])+len(w.spoiled[name]) > 0 }

// finding lists the names of resources held that a name finds besides the one called so.
func (w *clientType) finding(name string) []string {
	return slices.Sorted(maps.Keys(w.found[name]))
}

// spoils lists the names of resources refused that it finds, the same way.
func (w *clientType) spoils(name string) []string {
	return slices.Sorted(maps.Keys(w.spoiled[name]))
}

// tell notes what the server knows of a name from now on.
func (w *clientType) tell(name string, n *clientName) {
	n.told = n.asked
	delete(w.changed, name)
}

// shed lets go of what a name found that is not asked any more, and of the name.
func (c *Client) shed(w *clientType, name string) {
	lets := func(s string) {
		n := w.names[s]
		if n == nil {
			return
		}
		if n.res != nil && !w.covers(s, n.res, isEither, "") {
			w.unindex(s, n.res)
			n.res = nil
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
