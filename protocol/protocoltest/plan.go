package protocoltest

import (
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// commit changes the view and returns the touched names.
func (c *content) commit() xds.Names {
	if c.whole {
		return c.apply(c.move())
	}
	e := newEdit()
	for range 1 + c.dice.IntN(3) {
		k := c.kinds[c.dice.IntN(len(c.kinds))]
		name := k.names[c.dice.IntN(len(k.names))]
		if slices.Contains(e.touched[k.url], name) || !c.free(e, k.url, "", name) && c.view.Table(k.typ()).Lookup(name) == nil {
			continue
		}
		if c.dice.IntN(3) == 0 {
			e.drop(k.url, name)
		} else {
			e.put(k.url, c.enrich(e, k.url, resource(k.url, name, c.dice.IntN(3), c.refs(k.url, name))))
		}
	}
	if c.rich && c.dice.IntN(4) == 0 {
		c.search(e)
	}
	if c.faults != nil && c.rich && c.faults.IntN(3) == 0 {
		c.withholdOne(e)
	}
	return c.apply(e)
}

// search makes a missing name undecided, or decides one.
func (c *content) search(e *edit) {
	k := c.kinds[c.dice.IntN(len(c.kinds))]
	asks := slices.Concat(k.names, k.aliases)
	name := asks[c.dice.IntN(len(asks))]
	switch {
	case slices.Contains(c.unknown[k.url], name):
		e.decide[k.url] = []string{name}
	case c.view.Table(k.typ()).Lookup(name) == nil && !slices.Contains(e.touched[k.url], name):
		e.search[k.url] = []string{name}
	}
}

// withholdOne withholds an existing name, or ends that for a name.
func (c *content) withholdOne(e *edit) {
	k := c.kinds[c.faults.IntN(len(c.kinds))]
	name := k.names[c.faults.IntN(len(k.names))]
	switch {
	case slices.Contains(c.withheld[k.url], name):
		e.touched[k.url] = append(e.touched[k.url], name)
	case c.view.Table(k.typ()).Lookup(name) != nil && !slices.Contains(e.touched[k.url], name):
		e.withhold[k.url] = []string{name}
	}
}

// rest makes an edit after which no resource expires and no name is undecided.
func (c *content) rest() (e *edit, any bool) {
	e = newEdit()
	for url, names := range c.unknown {
		e.decide[url] = names
		any = any || len(names) > 0
	}
	for _, k := range c.kinds {
		for _, n := range k.names {
			if r := c.view.Table(k.typ()).Lookup(n); r != nil && r.TTL > 0 {
				last := &xds.Resource{Stamp: &xds.Stamp{Name: n, Refs: r.Refs}, Type: r.Type, Body: r.Body, Aliases: r.Aliases, OnDemand: r.OnDemand}
				last.Seal("")
				e.put(k.url, last)
				any = true
			}
		}
	}
	return e, any
}

// pick chooses a reference to a kind.
func pick(d dice, k int) xds.Ref {
	return xds.Ref{Type: kinds[k].typ(), Name: kinds[k].names[d.IntN(len(kinds[k].names))]}
}

// refs chooses the references of a resource; sometimes they are unknown.
func (c *content) refs(url, name string) []xds.Ref {
	if c.dice.IntN(10) == 0 {
		return nil
	}
	refs := []xds.Ref{}
	switch url {
	case xds.Cluster.URL:
		switch c.dice.IntN(4) {
		case 0:
		case 1:
			refs = append(refs, pick(c.dice, atAssignments))
		default:
			refs = append(refs, xds.Ref{Type: xds.Endpoint, Name: service(name)})
		}
		if c.dice.IntN(4) == 0 {
			refs = append(refs, pick(c.dice, atSecrets))
		}
	case xds.Listener.URL:
		if c.dice.IntN(4) == 0 {
			refs = append(refs, pick(c.dice, atClusters))
		}
		refs = append(refs, pick(c.dice, atRoutes))
	case xds.Route.URL, xds.VirtualHost.URL:
		refs = append(refs, pick(c.dice, atClusters))
		if c.dice.IntN(3) == 0 {
			refs = append(refs, pick(c.dice, atClusters))
		}
	}
	return append(append(refs, c.moreRefs(url)...), c.memberRefs(url)...)
}

// service returns the usual assignment of a cluster. For the first two clusters it has the name of the
// cluster, for the others a service name.
func service(cluster string) string {
	if cluster < "c2" {
		return cluster
	}
	return "e" + cluster[1:]
}

// move changes the targets of some routes, and some clusters and endpoints, and keeps exactly the referred
// resources.
func (c *content) move() *edit {
	e := newEdit()
	c.gen++
	put := func(url, name string, refs ...xds.Ref) {
		e.put(url, c.enrich(e, url, resource(url, name, c.gen, append(append([]xds.Ref{}, refs...), c.link(url, name)...))))
	}
	c.listening(e, put)
	used := map[string]bool{}
	for _, r := range c.routes {
		used[r] = true
	}
	c.scoping(e, used, put)
	for _, r := range kinds[4].names {
		_, has := c.targets[r]
		switch {
		case !used[r] && has:
			delete(c.targets, r)
			e.drop(xds.Route.URL, r)
		case used[r] && (!has || c.dice.IntN(3) == 0):
			target := pick(c.dice, atClusters).Name
			c.targets[r] = target
			if c.named && c.dice.IntN(2) == 0 {
				target = "a" + target
			}
			put(xds.Route.URL, r, xds.Ref{Type: xds.Cluster, Name: target})
		}
	}
	needed := map[string]bool{}
	for _, target := range c.targets {
		needed[target] = true
	}
	c.hosting(e, needed, put)
	c.filtering(e, needed, put)
	c.clustering(e, needed, put)
	c.supply(e, put)
	if c.dice.IntN(4) == 0 {
		e.put(unknownURL, resource(unknownURL, pick(c.dice, atWidgets).Name, c.gen, []xds.Ref{}))
	}
	return e
}

// listening changes, removes and adds listeners.
func (c *content) listening(e *edit, put func(url, name string, refs ...xds.Ref)) {
	for _, l := range kinds[3].names {
		if _, ok := c.routes[l]; !ok && c.gen == 1 || c.dice.IntN(5) == 0 {
			if ok && c.dice.IntN(3) == 0 {
				delete(c.routes, l)
				e.drop(xds.Listener.URL, l)
				continue
			}
			c.routes[l] = pick(c.dice, atRoutes).Name
			put(xds.Listener.URL, l, xds.Ref{Type: xds.Route, Name: c.routes[l]})
		}
	}
}

// clustering changes, removes and adds clusters and their assignments.
func (c *content) clustering(e *edit, needed map[string]bool, put func(url, name string, refs ...xds.Ref)) {
	again := c.group(kinds[atClusters], needed)
	for _, name := range kinds[0].names {
		old, has := c.services[name]
		switch {
		case !needed[name] && has:
			delete(c.services, name)
			e.drop(xds.Cluster.URL, name)
		case needed[name] && (!has || again[name] || c.dice.IntN(4) == 0):
			c.services[name] = service(name)
			if c.dice.IntN(5) == 0 {
				c.services[name] = ""
			}
			refs := []xds.Ref{}
			if s := c.services[name]; s != "" {
				refs = append(refs, xds.Ref{Type: xds.Endpoint, Name: s})
			}
			put(xds.Cluster.URL, name, append(refs, c.members[xds.Cluster.URL+name]...)...)
		}
		switch s := c.services[name]; {
		case s == "" && old != "":
			e.drop(xds.Endpoint.URL, old)
		case s != "" && (old == "" || c.dice.IntN(4) == 0):
			put(xds.Endpoint.URL, s)
		}
	}
}

// freshen changes the resources of the given names, so that no refusal remains.
func (c *content) freshen(names map[string][]string) xds.Names {
	e := newEdit()
	for _, k := range c.kinds {
		for _, n := range names[k.url] {
			if place, glob := strings.CutSuffix(n, "*"); glob {
				n = place + "fresh"
			}
			c.gen++
			e.put(k.url, resource(k.url, n, 1000+c.gen, []xds.Ref{}))
		}
	}
	return c.apply(e)
}
