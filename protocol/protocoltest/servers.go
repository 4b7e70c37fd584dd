package protocoltest

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A manner is what a server does although the document does not define it, or forbids it. A number is how many
// of ten responses are affected.
type manner struct {
	silent  bool // it never sends anything
	resends int  // the same content again, with another nonce
	all     int  // named types: also unsubscribed resources
	spare   int  // full state: only the names of the last request, and not those of earlier ones
	empty   int  // a response without resources
	nonce   int  // the nonce of an earlier response, or none
	stale   int  // a response that was sent before
	resets  bool // versions begin again with each stream, and mean something else
	alien   int  // types that were not requested
	broken  int  // names twice, wrong types, empty names, unreadable resources
	errors  int  // resource_errors, removals of unknown names, heartbeats
	bad     int  // resources that the client cannot use
}

// Servers are the personalities of simulated servers.
var Servers = []string{"honest", "go-control-plane", "istio", "silent", "stale", "reset", "unasked", "sloppy", "wild"}

var manners = map[string]manner{
	"honest":           {bad: 1, errors: 2},
	"go-control-plane": {resends: 3, all: 3, spare: 1, bad: 1},
	"istio":            {resends: 4, all: 10, empty: 3, bad: 1},
	"silent":           {silent: true},
	"stale":            {nonce: 5, stale: 5, resends: 2, bad: 1},
	"reset":            {resets: true, resends: 1, bad: 1},
	"unasked":          {all: 10, alien: 5, errors: 3},
	"sloppy":           {broken: 5, bad: 3, errors: 3},
	"wild":             {resends: 2, all: 4, spare: 2, empty: 1, nonce: 2, stale: 2, alien: 2, broken: 2, errors: 4, bad: 3, resets: true},
}

// A faker is a server with a manner. When it is honest, it follows every rule, and knows nothing about its
// earlier responses.
type faker struct {
	*served
	manner
	honest  bool
	content map[string]map[string]*xds.Resource // by type URL and name
	subs    map[string]map[string]bool          // by type URL: names subscribed on this stream
	implied map[string]bool                     // SotW: no request of this stream had names
	sent    map[string]map[string]string        // delta: versions sent on this stream
	last    map[string]*xds.Response            // by type URL: last response of any stream
	current map[string]string                   // SotW: version and names last sent on this stream
	newest  map[string]string                   // the nonce of the newest response on this stream
	count   int
	born    int // count when versions last began again
}

func newFaker(w *served) *faker {
	f := &faker{served: w, manner: manners[w.cfg.Server], content: map[string]map[string]*xds.Resource{}, last: map[string]*xds.Response{}, implied: map[string]bool{}}
	for _, k := range servedKinds {
		f.content[k.typ.URL] = map[string]*xds.Resource{}
		for range 2 {
			f.change(k)
		}
	}
	f.disconnected(nil)
	return f
}

func (f *faker) disconnected(only *xds.Type) {
	if only == nil {
		f.subs, f.sent, f.current, f.newest = map[string]map[string]bool{}, map[string]map[string]string{}, map[string]string{}, map[string]string{}
	} else {
		delete(f.subs, only.URL)
		delete(f.sent, only.URL)
		delete(f.current, only.URL)
		delete(f.newest, only.URL)
	}
	if f.resets {
		f.born = f.count
	}
}

func (f *faker) odds(of int) bool { return !f.honest && of > 0 && f.dice.IntN(10) < of }

// make creates a resource.
func (f *faker) make(k servedKind, name string) *xds.Resource {
	f.count++
	body := fmt.Sprint(f.dice.IntN(4))
	switch {
	case f.odds(f.bad):
		body = "?" + body
	case f.odds(f.bad) && f.dice.IntN(3) == 0:
		body = "!" + body
	}
	r := xds.NewResource(k.typ, name, []byte(body))
	if f.dice.IntN(6) == 0 {
		r.TTL = []time.Duration{2 * time.Second, 5 * time.Second}[f.dice.IntN(2)]
	}
	for _, a := range k.finds {
		if a != name && !strings.Contains(a, "*") && f.dice.IntN(3) == 0 {
			r.Aliases = append(r.Aliases, a)
		}
	}
	version := ""
	if f.resets {
		version = fmt.Sprint(f.count - f.born)
	}
	r.Seal(version)
	return r
}

// change changes the content of a type.
func (f *faker) change(k servedKind) {
	name := k.names[f.dice.IntN(len(k.names))]
	if f.dice.IntN(3) == 0 {
		delete(f.content[k.typ.URL], name)
		return
	}
	f.content[k.typ.URL][name] = f.make(k, name)
}

// receive applies the subscriptions of a request, and answers it.
func (f *faker) receive(r xds.Request) {
	url := r.Type.URL
	first := f.subs[url] == nil
	if first {
		f.subs[url], f.sent[url] = map[string]bool{}, map[string]string{}
	}
	switch {
	case f.cfg.Variant == xds.Delta:
		f.subscribe(r, first)
	case !first && r.Nonce != f.newest[url]:
		return // "a stale nonce"
	default:
		f.replaceNames(r, first)
	}
	if f.honest || f.dice.IntN(4) > 0 {
		f.answer(r.Type)
	}
}

// replaceNames applies the names of a SotW request.
func (f *faker) replaceNames(r xds.Request, first bool) {
	url := r.Type.URL
	f.implied[url] = len(r.Names) == 0 && (first || f.implied[url])
	f.subs[url] = setOf(r.Names)
	if f.implied[url] {
		f.subs[url] = map[string]bool{xds.Wildcard: true}
	}
	if first && r.Version != "" && r.Version == f.version(r.Type) && f.cfg.Server == "honest" {
		f.current[url] = r.Version + fmt.Sprint(slices.Sorted(keys(f.subs[url])))
	}
}

// subscribe applies the names of a delta request.
func (f *faker) subscribe(r xds.Request, first bool) {
	subs, sent := f.subs[r.Type.URL], f.sent[r.Type.URL]
	for _, n := range r.Subscribe {
		subs[n] = true
		delete(sent, n)
	}
	if first && len(r.Subscribe) == 0 {
		subs[xds.Wildcard] = true
	}
	for _, n := range r.Unsubscribe {
		delete(subs, n)
	}
	for _, v := range r.Initial {
		sent[xds.CanonicalName(v.Name)] = "stated"
		if f.cfg.Server == "honest" {
			sent[xds.CanonicalName(v.Name)] = v.Version
		}
	}
}

// push sends the news of all types.
func (f *faker) push() {
	for _, k := range servedKinds {
		f.answer(k.typ)
	}
}

// act sends something about a type without a request.
func (f *faker) act(k servedKind) {
	if f.silent {
		return
	}
	switch last := f.last[k.typ.URL]; {
	case f.odds(f.stale) && last != nil:
		again := *last
		f.send(&again)
	case f.odds(f.resends) && last != nil && f.cfg.Variant == xds.SotW:
		f.current[k.typ.URL] = ""
		f.answer(k.typ)
	case f.odds(f.empty):
		f.send(&xds.Response{Type: k.typ, Version: f.version(k.typ), Changes: &xds.Changes{}})
	case f.odds(f.errors) && last != nil && f.current[k.typ.URL] != "" && (f.cfg.Variant == xds.Delta || !k.typ.FullState):
		f.send(&xds.Response{Type: k.typ, Version: last.Version, TTL: true, Changes: f.trouble(k, &xds.Changes{})})
	case f.odds(f.alien):
		t := []*xds.Type{nil, xds.Runtime, xds.TypeOf(unknownURL), k.typ}[f.dice.IntN(4)]
		f.send(&xds.Response{Type: t, Version: "alien", Changes: &xds.Changes{Upserts: []*xds.Resource{f.make(k, "alien"), f.make(k, k.names[0])}, Removed: []string{"unnamed"}, Missing: []string{"unnamed"}}})
	default:
		f.answer(k.typ)
	}
}

// version returns the version of a type: of its content, or a number that begins again with each stream.
func (f *faker) version(t *xds.Type) string {
	if f.resets && !f.honest {
		return fmt.Sprint((f.count - f.born) / 4)
	}
	var version strings.Builder
	version.WriteString("h")
	for _, name := range slices.Sorted(maps.Keys(f.content[t.URL])) {
		version.WriteString(" " + f.content[t.URL][name].Sum.String())
	}
	return version.String()
}

// finds reports whether a subscription matches a resource.
func (f *faker) finds(t *xds.Type, r *xds.Resource) bool {
	subs := f.subs[t.URL]
	return slices.ContainsFunc(slices.Collect(finders(f.cfg.Variant, t, r)), func(s string) bool { return subs[s] })
}

// finders returns the names that match a resource.
func finders(v xds.Variant, t *xds.Type, r *xds.Resource) iter.Seq[string] {
	names := []string{xds.Wildcard, xds.CanonicalName(r.Name)}
	if v == xds.Delta {
		names = append(names, r.Aliases...)
		if c := t.Collection(r.Name); c != "" {
			names = append(names, c)
		}
	}
	return slices.Values(names)
}

// answer sends a response about a type, if there is news.
func (f *faker) answer(t *xds.Type) {
	url := t.URL
	if f.silent || f.subs[url] == nil {
		return
	}
	all := f.odds(f.all)
	c := f.changes(t, all)
	state := f.version(t) + fmt.Sprint(slices.Sorted(keys(f.subs[url])))
	news := f.current[url] != state || all
	if f.cfg.Variant == xds.Delta {
		f.remove(t, c)
		news = len(c.Upserts)+len(c.Removed) > 0
	}
	if !news {
		return
	}
	f.current[url] = state
	if f.dice.IntN(2) == 0 { // unsorted
		slices.Reverse(c.Upserts)
	}
	resp := &xds.Response{Type: t, Version: f.version(t), TTL: true, Changes: c}
	i := slices.IndexFunc(servedKinds, func(k servedKind) bool { return k.typ.Is(t) })
	if f.odds(f.errors) {
		f.trouble(servedKinds[i], c)
	}
	if f.odds(f.broken) {
		f.breakResponse(servedKinds[i], resp)
	}
	f.send(resp)
}

// changes returns the resources of a type that a response has; all: also the unsubscribed ones.
func (f *faker) changes(t *xds.Type, all bool) *xds.Changes {
	c := &xds.Changes{}
	for _, name := range slices.Sorted(maps.Keys(f.content[t.URL])) {
		r := f.content[t.URL][name]
		if !all && !f.finds(t, r) || f.odds(f.spare) {
			continue
		}
		if f.cfg.Variant == xds.SotW || f.sent[t.URL][name] != r.Version || f.odds(f.resends) {
			c.Upserts = append(c.Upserts, r)
		}
	}
	return c
}

// remove adds removals to the changes of a type, and records the changes as sent.
func (f *faker) remove(t *xds.Type, c *xds.Changes) {
	sent := f.sent[t.URL]
	for name, version := range sent {
		if version == "none" && !f.found(t, name) {
			continue
		}
		if r := f.content[t.URL][name]; r == nil || !f.finds(t, r) {
			c.Removed = append(c.Removed, name)
			delete(sent, name)
		}
	}
	for _, n := range slices.Sorted(keys(f.subs[t.URL])) {
		if f.dice.IntN(2) == 0 && n != xds.Wildcard && sent[n] == "" && !f.found(t, n) {
			c.Removed = append(c.Removed, n)
			sent[n] = "none"
		}
	}
	slices.Sort(c.Removed)
	for _, r := range c.Upserts {
		sent[r.Name] = r.Version
	}
}

func (f *faker) found(t *xds.Type, name string) bool {
	for _, r := range f.content[t.URL] {
		if slices.Contains(slices.Collect(finders(f.cfg.Variant, t, r)), name) {
			return true
		}
	}
	return false
}

// trouble adds a removal, an absence, an error or a heartbeat of a name.
func (f *faker) trouble(k servedKind, c *xds.Changes) *xds.Changes {
	names := slices.Concat(k.names, k.finds)
	name := names[f.dice.IntN(len(names))]
	switch f.dice.IntN(4) {
	case 0:
		c.Missing = append(c.Missing, name)
	case 1:
		if f.cfg.Variant == xds.Delta {
			c.Absent = append(c.Absent, name)
		}
	case 2:
		if f.cfg.Variant == xds.Delta {
			c.Removed = append(c.Removed, name)
		}
	default:
		if r := f.content[k.typ.URL][name]; r != nil && r.TTL > 0 {
			c.Beats = append(c.Beats, r)
		}
	}
	return c
}

// breakResponse breaks a response.
func (f *faker) breakResponse(k servedKind, r *xds.Response) {
	name := k.names[f.dice.IntN(len(k.names))]
	switch f.dice.IntN(9) {
	case 0:
		r.Upserts = append(r.Upserts, f.make(k, name), f.make(k, name))
	case 1:
		x := xds.NewResource(xds.Runtime, name, []byte("0"))
		r.Upserts = append(r.Upserts, x)
	case 2:
		r.Malformed = append(r.Malformed, errors.New("unreadable resource"))
	case 3:
		r.Upserts = append(r.Upserts, xds.NewResource(k.typ, "", []byte("0")), nil, &xds.Resource{}, xds.NewResource(k.typ, xds.Wildcard, []byte("0")))
	case 4:
		r.Removed = append(r.Removed, name, name)
	case 5:
		r.Errors = append(r.Errors, xds.ResourceError{Name: name, Status: xds.Status{Code: []int32{5, 7, 14}[f.dice.IntN(3)], Message: "trouble"}})
	case 6:
		r.Upserts = append(r.Upserts, xds.NewResource(k.typ, name, nil))
	case 7:
		r.Changes = nil
	case 8:
		r.Removed = append(r.Removed, xds.Wildcard, "")
	}
}

// send gives a response its nonce, and puts it in flight.
func (f *faker) send(r *xds.Response) {
	if !f.streams[""] && (r.Type == nil || !f.streams[r.Type.URL]) {
		return
	}
	f.count++
	r.Nonce = fmt.Sprint(f.count)
	if r.Type != nil {
		if f.odds(f.nonce) {
			r.Nonce = []string{"", f.newest[r.Type.URL], "1"}[f.dice.IntN(3)]
		}
		f.last[r.Type.URL], f.newest[r.Type.URL] = r, r.Nonce
	}
	f.down = append(f.down, r)
}
