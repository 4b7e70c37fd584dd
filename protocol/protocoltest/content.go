package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// unknownURL is a type that is not in the table of types. The core must serve it all the same.
const unknownURL = "type.googleapis.com/example.v1.Widget"

// A kind is one resource type of a world, with the names that it draws from.
type kind struct {
	url     string
	names   []string
	aliases []string // one of them is also the name of a resource
	globs   []string // names of collections
}

var kinds = []kind{
	{url: xds.Cluster.URL, names: []string{"c0", "c1", "c2", "c3"}, aliases: []string{"ca", "c3"}},
	{url: xds.Endpoint.URL, names: []string{"c0", "c1", "e1", "e2", "e3"}},
	{url: xds.Secret.URL, names: []string{"s0", "xdstp://a/s/x/1", "xdstp://a/s/x/2"}, aliases: []string{"sa", "s0"}, globs: []string{"xdstp://a/s/x/*"}},
	{url: xds.Listener.URL, names: []string{"l0", "l1", "l2"}},
	{url: xds.Route.URL, names: []string{"r0", "r1", "r2"}},
	{url: unknownURL, names: []string{"x0", "x1"}},
	{url: xds.VirtualHost.URL, names: []string{"r0/a", "r0/b", "r1/a"}, aliases: []string{"r0/x", "r1/a"}, globs: []string{"r0/*"}},
	{url: xds.ScopedRoute.URL, names: []string{"p0", "p1"}},
	{url: xds.ExtensionConfig.URL, names: []string{"f0", "f1"}},
	{url: xds.LbEndpoint.URL, names: []string{"xdstp://a/e/g/1", "xdstp://a/e/g/2", "xdstp://a/e/h/1"}, globs: []string{"xdstp://a/e/g/*", "xdstp://a/e/h/*"}},
	{url: xds.Runtime.URL, names: []string{"t0", "t1"}},
}

// The index of each type in kinds.
const (
	atClusters = iota
	atAssignments
	atSecrets
	atListeners
	atRoutes
	atWidgets
	atHosts
	atScopes
	atFilters
	atEndpoints
	atLayers
)

// deltaOnly reports whether a type is not served in SotW.
func deltaOnly(t *xds.Type) bool { return t.Known() && t.Stream == "" }

// asks returns the names that a client may subscribe to.
func (k kind) asks() []string { return slices.Concat(k.names, k.aliases, k.globs) }

// typ returns the row of the kind. For the unknown type it returns a new row each time, because
// each stream has its own row.
func (k kind) typ() *xds.Type { return xds.TypeOf(k.url) }

// A content makes the commits of a world. If whole is set, every commit is atomic and every reference in a
// view resolves.
type content struct {
	dice  dice
	kinds []kind
	view  xds.Tables
	fast  ranked // the same tables as view
	whole bool
	named bool        // whole: clusters also have aliases, and some routes refer to them by alias
	flips []*xds.Type // whole: types whose resources become on demand, and back
	rich  bool        // aliases, on-demand resources and undecided names
	timed bool        // resources may expire
	gen   int

	unknown  xds.Names               // undecided names
	faults   dice                    // choices of withheld names; nil: none is withheld
	inner    dice                    // choices of references inside a type
	withheld xds.Names               // names that are withheld from clients that refused them
	lazy     map[string]bool         // names of resources that are usually on demand
	recent   map[string][]*xds.Table // by type URL, all earlier tables, the newest first

	versioned bool // the source supplies the types' versions

	targets  map[string]string    // whole: route → cluster
	routes   map[string]string    // whole: listener → route
	services map[string]string    // whole: cluster → assignment; "" for none
	past     map[string][]xds.Sum // whole: the states of a route or listener since it was created
	dead     map[xds.Sum]bool     // whole: the states of removed routes and listeners, which never return
	links    map[string][]xds.Ref // whole: further references of a resource, by type and name
	members  map[string][]xds.Ref // whole: its references inside its type
}

func newContent(d, inner dice, whole, rich, named bool, flips []*xds.Type) *content {
	c := &content{dice: d, inner: inner, members: map[string][]xds.Ref{}, kinds: kinds, links: map[string][]xds.Ref{}, view: xds.Tables{}, whole: whole, named: named, rich: rich, timed: d.IntN(4) == 0, versioned: d.IntN(10) == 0,
		unknown: xds.Names{}, withheld: xds.Names{}, lazy: map[string]bool{}, recent: map[string][]*xds.Table{},
		targets: map[string]string{}, routes: map[string]string{}, services: map[string]string{}, past: map[string][]xds.Sum{}, dead: map[xds.Sum]bool{}}
	for _, k := range c.kinds {
		c.view[k.url] = xds.NewTable(k.typ())
		for _, n := range k.names {
			c.lazy[n] = rich && d.IntN(4) == 0
		}
	}
	c.fast = newRanked(c.view)
	if whole {
		c.commit()
	} else {
		for range d.IntN(8) {
			c.commit()
		}
	}
	return c
}

// resource makes a resource whose body contains all arguments: equal arguments make equal content, so states
// can recur.
func resource(url, name string, gen int, refs []xds.Ref) *xds.Resource {
	body := strconv.AppendInt(nil, int64(gen), 10)
	for _, r := range refs {
		body = append(append(body, ' '), r.Name...)
	}
	r := xds.NewResource(xds.TypeOf(url), name, body)
	r.Refs, r.Addresses = refs, addresses(r.Type, name, gen)
	return r
}

// ttls are the possible TTLs of a resource. Only a few of them are so short that a slow client lets the
// resource expire.
var ttls = []time.Duration{0, 0, 30 * time.Second, 3 * time.Second, 5 * time.Minute, 9 * time.Second}

// free reports whether no other resource has an alias after an edit: a world gives a name to one resource
// only, as a store does.
func (c *content) free(e *edit, url, name, alias string) bool {
	taken := func(r *xds.Resource) bool {
		return r.Name != name && (r.Name == alias || slices.Contains(r.Aliases, alias))
	}
	if alias == name || slices.ContainsFunc(e.set[url], taken) {
		return false
	}
	for r := range c.view.Table(xds.TypeOf(url)).All() {
		if taken(r) && !slices.Contains(e.touched[url], r.Name) {
			return false
		}
	}
	return true
}

// enrich adds aliases, a TTL and on-demand loading to a resource.
func (c *content) enrich(e *edit, url string, r *xds.Resource) *xds.Resource {
	if c.named && url == xds.Cluster.URL {
		r.Aliases = []string{"a" + r.Name}
	}
	if slices.ContainsFunc(c.flips, func(t *xds.Type) bool { return t.URL == url }) {
		r.OnDemand = c.dice.IntN(3) == 0
	}
	if c.timed {
		r.TTL = ttls[c.dice.IntN(len(ttls))]
	}
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.url == url }); c.rich && len(kinds[i].aliases) > 0 {
		for _, a := range kinds[i].aliases {
			if c.dice.IntN(3) == 0 && c.free(e, url, r.Name, a) {
				r.Aliases = append(r.Aliases, a)
			}
		}
		r.OnDemand = c.lazy[r.Name] != (c.dice.IntN(6) == 0) // sometimes the resource becomes on demand, or stops being on demand
	}
	r.Seal("")
	return r
}

// An edit collects the changes of one commit.
type edit struct {
	set     map[string][]*xds.Resource
	remove  map[string][]string
	touched xds.Names
	search  xds.Names // names that become undecided
	decide  xds.Names

	withhold xds.Names // names that become withheld
}

func newEdit() *edit {
	return &edit{map[string][]*xds.Resource{}, map[string][]string{}, xds.Names{}, xds.Names{}, xds.Names{}, xds.Names{}}
}

func (e *edit) put(url string, r *xds.Resource) {
	e.set[url] = append(e.set[url], r)
	e.touched[url] = append(e.touched[url], r.Name)
	e.touch(url, r)
}

func (e *edit) drop(url, name string) {
	e.remove[url] = append(e.remove[url], name)
	e.touched[url] = append(e.touched[url], name)
}

// apply makes the next view and returns the names touched.
func (c *content) apply(e *edit) xds.Names {
	next := maps.Clone(c.view)
	for url, names := range e.remove {
		for _, n := range names {
			for _, sum := range c.past[url+n] {
				c.dead[sum] = true
			}
			delete(c.past, url+n)
		}
	}
	if c.whole {
		for url, set := range e.set {
			for _, r := range set {
				c.past[url+r.Name] = append(c.past[url+r.Name], r.Sum)
			}
		}
	}
	for url := range e.touched {
		was := next[url]
		table, err := was.With(e.set[url], e.remove[url]...)
		if err != nil {
			panic(err) // the plan must not make such an edit
		}
		next[url] = table
		for _, n := range slices.Clone(e.touched[url]) {
			e.touch(url, was.Lookup(n))
		}
	}
	if c.versioned {
		// The source supplies the version, whether something changed or not.
		for _, k := range c.kinds {
			next[k.url] = next.Table(k.typ()).WithVersion("v" + strconv.Itoa(c.dice.IntN(3)))
		}
	}
	c.decide(e)
	c.withhold(e)
	c.view, c.fast = next, newRanked(next)
	for url, t := range next {
		if r := c.recent[url]; len(r) == 0 || r[0] != t {
			c.recent[url] = append([]*xds.Table{t}, r...)
		}
	}
	return e.touched
}

// decide makes names undecided or decided.
func (c *content) decide(e *edit) {
	known := func(url string) func(string) bool {
		return func(n string) bool {
			return slices.Contains(e.decide[url], n) || slices.ContainsFunc(e.set[url], func(r *xds.Resource) bool { return r.Name == n })
		}
	}
	unknown := maps.Clone(c.unknown)
	for url, names := range unknown {
		unknown[url] = slices.DeleteFunc(slices.Clone(names), known(url))
	}
	for url, names := range e.search {
		unknown[url] = append(slices.Clip(unknown[url]), names...)
		e.touched[url] = append(e.touched[url], names...)
	}
	for url, names := range e.decide {
		e.touched[url] = append(e.touched[url], names...)
	}
	c.unknown = unknown
}

// withhold changes the withheld names. A name that changes is no longer withheld.
func (c *content) withhold(e *edit) {
	next := maps.Clone(c.withheld)
	for url, names := range e.touched {
		next[url] = slices.DeleteFunc(slices.Clone(next[url]), func(n string) bool { return slices.Contains(names, n) })
	}
	for url, names := range e.withhold {
		next[url] = append(slices.Clip(next[url]), names...)
		e.touched[url] = append(e.touched[url], names...)
	}
	c.withheld = next
}

// A ranked view finds its tables by the ranks of their types. That is fast, because sessions look
// up tables often.
type ranked struct {
	xds.Tables
	tables []*xds.Table
}

func newRanked(all xds.Tables) ranked {
	v := ranked{Tables: all}
	for _, t := range xds.Types() {
		v.tables = append(v.tables, all.Table(t))
	}
	return v
}

func (v ranked) Table(t *xds.Type) *xds.Table {
	if t.Known() {
		return v.tables[t.Rank()]
	}
	return v.Tables.Table(t)
}

// seen returns the view of the clients' sessions.
func (c *content) seen() xds.View {
	if !c.rich {
		return c.fast
	}
	return View{c.fast, c.unknown, c.withheld}
}

// touch records the names that match a resource, as a store does.
func (e *edit) touch(url string, r *xds.Resource) {
	if r == nil {
		return
	}
	e.touched[url] = append(e.touched[url], r.Aliases...)
	if c := xds.TypeOf(url).Collection(r.Name); c != "" {
		e.touched[url] = append(e.touched[url], c)
	}
}

// refs returns the names of a type to which a resource refers.
func refs(r *xds.Resource, t *xds.Type) (names []string) {
	if r == nil {
		return nil
	}
	for _, ref := range r.Refs {
		if ref.Type.Is(t) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// refersTo reports whether a resource refers to a name of a type.
func refersTo(r *xds.Resource, t *xds.Type, name string) bool {
	return slices.Contains(refs(r, t), name)
}

// show describes a resource for the story.
func show(r *xds.Resource) string {
	if r == nil || r.Stamp == nil {
		return "nothing"
	}
	out := fmt.Sprintf("%s@%s", r.Name, r.Body)
	if r.Refs == nil {
		out += "?"
	}
	if r.TTL > 0 {
		out += "/" + r.TTL.String()
	}
	if r.OnDemand {
		out += " on demand"
	}
	if len(r.Aliases) > 0 {
		out += fmt.Sprint(" alias ", r.Aliases)
	}
	return out
}
