package tap

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Disorder lists where the server broke make before break towards one client, on any of its streams: it
// removed a cluster although a route that the client accepted, or that is in flight, refers to it; or it sent
// a route to a cluster that the client cannot have.
func (rs Records) Disorder() []string {
	o := order{
		told: map[string]map[string]bool{}, clusters: map[string]Record{}, versions: map[string]Resource{}, routes: map[string]Record{},
		sent: map[string]Record{}, has: map[string]bool{}, accepted: map[string]Resource{}, underway: map[string]Record{}, seen: map[string]bool{},
	}
	for _, r := range rs {
		switch {
		case r.Kind == Request && r.Type == "CDS":
			o.askedClusters(r)
		case r.Kind == Request && r.Type == "RDS":
			o.askedRoutes(r)
		case r.Kind == Response && r.Type == "CDS":
			o.toldClusters(r)
		case r.Kind == Response && r.Type == "RDS":
			o.toldRoutes(r)
		}
	}
	return o.bad
}

// An order is the state that a client must have according to the records so far.
type order struct {
	sent map[string]Record // responses by stream and nonce
	seen map[string]bool   // streams and types with a request

	told     map[string]map[string]bool // clusters sent, by stream
	has      map[string]bool            // clusters that the client accepted on any stream
	clusters map[string]Record          // SotW: responses by version

	accepted map[string]Resource // routes by name
	underway map[string]Record   // unanswered responses with routes, by stream and nonce
	versions map[string]Resource // delta: routes by name and version
	routes   map[string]Record   // SotW: responses by version
	bad      []string
}

func key(r Record) string { return fmt.Sprint(r.Stream, " ", r.Nonce) }

// askedClusters records which clusters a client has according to a request.
func (o *order) askedClusters(r Record) {
	is, ok := o.sent[key(r)]
	if first := fmt.Sprint(r.Stream, " CDS"); !o.seen[first] {
		o.seen[first] = true
		if !r.Delta { // a response in flight when the stream broke has arrived if the client states its version
			is, ok = o.clusters[r.Version]
		}
	}
	if ok && !r.IsNACK() {
		if !r.Delta {
			clear(o.has)
		}
		for _, x := range is.Resources {
			o.has[x.Name] = true
		}
		for _, name := range is.Removed {
			delete(o.has, name)
		}
	}
	for _, x := range r.Initial {
		name, _, _ := cutLast(x, "@")
		o.has[name] = true
	}
}

// askedRoutes records which routes a client has accepted.
func (o *order) askedRoutes(r Record) {
	first := fmt.Sprint(r.Stream, " RDS")
	if !o.seen[first] {
		// A response in flight when the stream broke has arrived if the client states its version.
		if is, ok := o.routes[r.Version]; ok && !r.Delta {
			o.accept(is)
		}
		for _, x := range r.Initial {
			if is, ok := o.versions[x]; ok {
				o.accepted[is.Name] = is
			}
		}
		clear(o.underway)
	}
	o.seen[first] = true
	if is, ok := o.underway[key(r)]; ok {
		delete(o.underway, key(r))
		if !r.IsNACK() {
			o.accept(is)
		}
	}
}

func (o *order) accept(r Record) {
	for _, x := range r.Resources {
		o.accepted[x.Name] = x
	}
}

func (o *order) toldClusters(r Record) {
	o.sent[key(r)] = r
	if !r.Delta {
		o.clusters[r.Version] = r
	}
	stream := fmt.Sprint(r.Stream)
	now := map[string]bool{}
	if r.Delta {
		maps.Copy(now, o.told[stream])
	}
	for _, x := range r.Resources {
		now[x.Name] = true
	}
	o.told[stream] = now
	var gone []string
	for _, name := range o.used() {
		if lacks := !now[name]; r.Delta && slices.Contains(r.Removed, name) || !r.Delta && lacks && o.known(name) {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		o.bad = append(o.bad, fmt.Sprintf("ADS-3 withdrawn while routes lead there: %s\n%s", strings.Join(gone, ", "), r))
	}
}

// known reports whether the client has ever had the cluster.
func (o *order) known(name string) bool {
	return o.has[name] || slices.ContainsFunc(slices.Collect(maps.Values(o.told)), func(m map[string]bool) bool { return m[name] })
}

// used returns the clusters that routes refer to, of routes that the client has or that are in flight.
func (o *order) used() []string {
	names := map[string]bool{}
	for _, x := range o.accepted {
		for _, name := range x.Clusters {
			names[name] = true
		}
	}
	for _, r := range o.underway {
		for _, x := range r.Resources {
			for _, name := range x.Clusters {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (o *order) toldRoutes(r Record) {
	was := o.used()
	o.underway[key(r)] = r
	o.routes[r.Version] = r
	var early []string
	for _, x := range r.Resources {
		o.versions[x.Name+"@"+x.Version] = x
		for _, name := range x.Clusters {
			if !o.has[name] && !o.told[fmt.Sprint(r.Stream)][name] && !slices.Contains(was, name) {
				early = append(early, name)
			}
		}
	}
	if len(early) > 0 {
		o.bad = append(o.bad, fmt.Sprintf("ADS-9 routes sent before their clusters: %s\n%s", strings.Join(early, ", "), r))
	}
}
