package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/chancery-xds/chancery/xds"
)

// An unheard of type: the core must serve what no table lists.
const unknownURL = "type.googleapis.com/example.v1.Widget"

// kind is one resource type of a world with the names it draws from.
type kind struct {
	url   string
	names []string
}

var kinds = []kind{
	{xds.Cluster.URL, []string{"c0", "c1", "c2", "c3"}},
	{xds.Endpoint.URL, []string{"c0", "c1", "e1", "e2", "e3"}},
	{xds.Secret.URL, []string{"s0", "s1"}},
	{xds.Listener.URL, []string{"l0", "l1", "l2"}},
	{xds.Route.URL, []string{"r0", "r1", "r2"}},
	{unknownURL, []string{"x0", "x1"}},
}

// typ returns the row of the kind; for the unknown type a new one each time, as
// each stream has its own.
func (k kind) typ() *xds.Type { return xds.TypeOf(k.url) }

// content makes the commits of a world. With whole set, every commit is atomic
// and every reference in a view resolves.
type content struct {
	dice  dice
	view  xds.Tables
	whole bool
	gen   int

	versioned bool // the source supplies the types' versions

	targets  map[string]string    // whole: route → cluster
	routes   map[string]string    // whole: listener → route
	services map[string]string    // whole: cluster → assignment; "": it needs none
	past     map[string][]xds.Sum // whole: what a route or listener was, since it is there
	dead     map[xds.Sum]bool     // whole: what was before it left; it never returns
}

func newContent(d dice, whole bool) *content {
	c := &content{dice: d, view: xds.Tables{}, whole: whole, versioned: d.IntN(10) == 0,
		targets: map[string]string{}, routes: map[string]string{}, services: map[string]string{}, past: map[string][]xds.Sum{}, dead: map[xds.Sum]bool{}}
	if whole {
		c.commit()
	} else {
		for range d.IntN(8) {
			c.commit()
		}
	}
	return c
}

// resource makes a resource whose body tells everything about it: equal
// arguments make equal content, so that states recur.
func resource(name string, gen int, refs []xds.Ref) *xds.Resource {
	body := strconv.AppendInt(nil, int64(gen), 10)
	for _, r := range refs {
		body = append(append(body, ' '), r.Name...)
	}
	r := xds.NewResource(name, body)
	r.Refs = refs
	return r
}

// edit collects what a commit does.
type edit struct {
	set     map[string][]*xds.Resource
	remove  map[string][]string
	touched xds.Names
}

func newEdit() *edit {
	return &edit{map[string][]*xds.Resource{}, map[string][]string{}, xds.Names{}}
}

func (e *edit) put(url string, r *xds.Resource) {
	e.set[url] = append(e.set[url], r)
	e.touched[url] = append(e.touched[url], r.Name)
}

func (e *edit) drop(url, name string) {
	e.remove[url] = append(e.remove[url], name)
	e.touched[url] = append(e.touched[url], name)
}

// apply makes the next view and returns the names touched.
func (c *content) apply(e *edit) xds.Names {
	next := maps.Clone(c.view)
	for _, names := range e.remove {
		for _, n := range names {
			for _, sum := range c.past[n] {
				c.dead[sum] = true
			}
			delete(c.past, n)
		}
	}
	if c.whole {
		for _, r := range e.set[xds.Route.URL] {
			c.past[r.Name] = append(c.past[r.Name], r.Sum)
		}
		for _, r := range e.set[xds.Listener.URL] {
			c.past[r.Name] = append(c.past[r.Name], r.Sum)
		}
	}
	for url := range e.touched {
		next[url] = next.Table(xds.TypeOf(url)).With(e.set[url], e.remove[url]...)
	}
	if c.versioned {
		// The source says what the version is, whether something changed or not.
		for _, k := range kinds {
			next[k.url] = next.Table(k.typ()).WithVersion("v" + strconv.Itoa(c.dice.IntN(3)))
		}
	}
	c.view = next
	return e.touched
}

// commit changes the view and returns the names it touched.
func (c *content) commit() xds.Names {
	if c.whole {
		return c.apply(c.move())
	}
	e := newEdit()
	for range 1 + c.dice.IntN(3) {
		k := kinds[c.dice.IntN(len(kinds))]
		name := k.names[c.dice.IntN(len(k.names))]
		if slices.Contains(e.touched[k.url], name) {
			continue
		}
		if c.dice.IntN(3) == 0 {
			e.drop(k.url, name)
		} else {
			e.put(k.url, resource(name, c.dice.IntN(3), c.refs(k.url, name)))
		}
	}
	return c.apply(e)
}

// refs makes up what a resource refers to; seldom it is not known.
func (c *content) refs(url, name string) []xds.Ref {
	pick := func(k int) xds.Ref {
		return xds.Ref{Type: kinds[k].typ(), Name: kinds[k].names[c.dice.IntN(len(kinds[k].names))]}
	}
	if c.dice.IntN(10) == 0 {
		return nil
	}
	refs := []xds.Ref{}
	switch url {
	case xds.Cluster.URL:
		switch c.dice.IntN(4) {
		case 0:
		case 1:
			refs = append(refs, pick(1))
		default:
			refs = append(refs, xds.Ref{Type: xds.Endpoint, Name: service(name)})
		}
		if c.dice.IntN(4) == 0 {
			refs = append(refs, pick(2))
		}
	case xds.Listener.URL:
		if c.dice.IntN(4) == 0 {
			refs = append(refs, pick(0))
		}
		refs = append(refs, pick(4))
	case xds.Route.URL:
		refs = append(refs, pick(0))
		if c.dice.IntN(3) == 0 {
			refs = append(refs, pick(0))
		}
	}
	return refs
}

// service is the usual assignment of a cluster: under its own name for the
// first two, under a service name for the others.
func service(cluster string) string {
	if cluster < "c2" {
		return cluster
	}
	return "e" + cluster[1:]
}

// move repoints some routes, changes some clusters and endpoints, and keeps
// exactly what is referred to.
func (c *content) move() *edit {
	e := newEdit()
	c.gen++
	pick := func(k int) string { return kinds[k].names[c.dice.IntN(len(kinds[k].names))] }
	for _, l := range kinds[3].names {
		if _, ok := c.routes[l]; !ok && c.gen == 1 || c.dice.IntN(5) == 0 {
			if ok && c.dice.IntN(3) == 0 {
				delete(c.routes, l)
				e.drop(xds.Listener.URL, l)
				continue
			}
			c.routes[l] = pick(4)
			e.put(xds.Listener.URL, resource(l, c.gen, []xds.Ref{{Type: xds.Route, Name: c.routes[l]}}))
		}
	}
	used := map[string]bool{}
	for _, r := range c.routes {
		used[r] = true
	}
	for _, r := range kinds[4].names {
		_, has := c.targets[r]
		switch {
		case !used[r] && has:
			delete(c.targets, r)
			e.drop(xds.Route.URL, r)
		case used[r] && (!has || c.dice.IntN(3) == 0):
			target := pick(0)
			c.targets[r] = target
			e.put(xds.Route.URL, resource(r, c.gen, []xds.Ref{{Type: xds.Cluster, Name: target}}))
		}
	}
	needed := map[string]bool{}
	for _, target := range c.targets {
		needed[target] = true
	}
	for _, name := range kinds[0].names {
		old, has := c.services[name]
		switch {
		case !needed[name] && has:
			delete(c.services, name)
			e.drop(xds.Cluster.URL, name)
		case needed[name] && (!has || c.dice.IntN(4) == 0):
			c.services[name] = service(name)
			if c.dice.IntN(5) == 0 {
				c.services[name] = ""
			}
			refs := []xds.Ref{}
			if s := c.services[name]; s != "" {
				refs = append(refs, xds.Ref{Type: xds.Endpoint, Name: s})
			}
			e.put(xds.Cluster.URL, resource(name, c.gen, refs))
		}
		switch s := c.services[name]; {
		case s == "" && old != "":
			e.drop(xds.Endpoint.URL, old)
		case s != "" && (old == "" || c.dice.IntN(4) == 0):
			e.put(xds.Endpoint.URL, resource(s, c.gen, []xds.Ref{}))
		}
	}
	if c.dice.IntN(4) == 0 {
		e.put(unknownURL, resource(pick(5), c.gen, []xds.Ref{}))
	}
	return e
}

// freshen changes the given names, so that nothing that was refused remains.
func (c *content) freshen(names map[string][]string) xds.Names {
	e := newEdit()
	for _, k := range kinds {
		for _, n := range names[k.url] {
			c.gen++
			e.put(k.url, resource(n, 1000+c.gen, []xds.Ref{}))
		}
	}
	return c.apply(e)
}

// show renders a resource for the story.
func show(r *xds.Resource) string {
	if r.Refs == nil {
		return fmt.Sprintf("%s@%s?", r.Name, r.Body)
	}
	return fmt.Sprintf("%s@%s", r.Name, r.Body)
}
