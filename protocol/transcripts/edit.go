package transcripts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// edit applies a step that changes the view.
func (p *play) edit(l line) error {
	if len(l.words) == 0 {
		return fmt.Errorf("a type is missing")
	}
	t, err := typeOf(l.words[0])
	if err != nil {
		return err
	}
	tab := p.view[t.URL]
	if tab == nil {
		tab = xds.NewTable(t)
	}
	var set []*xds.Resource
	var remove []string
	switch l.verb {
	case "set":
		set, err = resourcesOf(t, l)
		if err != nil {
			return err
		}
		for _, r := range set {
			p.decide(t, r.Name)
			p.touch(t, r)
		}
	case "remove":
		remove = l.words[1:]
	case "substitute":
		p.older[t.URL] = true
	case "unsubstitute":
		delete(p.older, t.URL)
	case "version":
		p.supplied[t.URL] = strings.Join(l.words[1:], " ")
	case "withhold", "unwithhold":
		p.withheld = maps.Clone(p.withheld)
		if p.withheld == nil {
			p.withheld = xds.Names{}
		}
		p.withheld[t.URL] = slices.DeleteFunc(slices.Clone(p.withheld[t.URL]), func(n string) bool { return slices.Contains(l.words[1:], n) })
		if l.verb == "withhold" {
			p.withheld[t.URL] = append(p.withheld[t.URL], l.words[1:]...)
		}
		p.touched[t.URL] = append(p.touched[t.URL], l.words[1:]...)
	case "undecided":
		p.unknown = maps.Clone(p.unknown)
		if p.unknown == nil {
			p.unknown = xds.Names{}
		}
		p.unknown[t.URL] = append(slices.Clip(p.unknown[t.URL]), l.words[1:]...)
		p.touched[t.URL] = append(p.touched[t.URL], l.words[1:]...)
	case "decided":
		for _, name := range l.words[1:] {
			p.decide(t, name)
		}
		p.touched[t.URL] = append(p.touched[t.URL], l.words[1:]...)
	}
	for _, name := range remove {
		if tab.Lookup(name) == nil {
			return fmt.Errorf("%s does not exist", name)
		}
		p.touch(t, tab.Lookup(name))
	}
	for _, r := range set {
		if old := tab.Lookup(r.Name); old != nil {
			p.touch(t, old)
		}
	}
	next, err := tab.With(set, remove...)
	if err != nil {
		return err
	}
	p.view = maps.Clone(p.view)
	p.view[t.URL] = next.WithVersion(p.supplied[t.URL])
	return nil
}

// touch records the names that match a resource, as a store does.
func (p *play) touch(t *xds.Type, r *xds.Resource) {
	names := append(p.touched[t.URL], r.Name)
	names = append(names, r.Aliases...)
	if c := t.Collection(r.Name); c != "" {
		names = append(names, c)
	}
	p.touched[t.URL] = names
}

// decide records that it is known whether a name exists.
func (p *play) decide(t *xds.Type, name string) {
	if !slices.Contains(p.unknown[t.URL], name) {
		return
	}
	p.unknown = maps.Clone(p.unknown)
	p.unknown[t.URL] = slices.DeleteFunc(slices.Clone(p.unknown[t.URL]), func(n string) bool { return n == name })
}

// remember keeps the tables of a commit for [protocol.Options.Recent].
func (p *play) remember() {
	for url, t := range p.view {
		if r := p.recent[url]; len(r) == 0 || r[0] != t {
			p.recent[url] = append([]*xds.Table{t}, r...)
		}
	}
}

// tables returns the recent tables of a type. In one way of replaying it omits the present table: both must
// work.
func (p *play) tables(t *xds.Type) []*xds.Table {
	r := p.recent[t.URL]
	if p.hints == None && len(r) > 0 && r[0] == p.view[t.URL] {
		return r[1:]
	}
	return r
}

func (p *play) seen() xds.View {
	return protocoltest.View{View: p.view, Undecideds: p.unknown, Withhelds: p.withheld}
}

// resourcesOf reads the resources of a line.
func resourcesOf(t *xds.Type, l line) (set []*xds.Resource, err error) {
	demand := len(l.words) == 2 && l.words[1] == "ondemand"
	if len(l.words) > 1 && !demand {
		return nil, fmt.Errorf("%s has no version", l.words[1])
	}
	refs, err := refsOf(l)
	if err != nil {
		return nil, err
	}
	addresses := addressesOf(l)
	var ttl time.Duration
	if l.has("ttl") {
		ttl, err = time.ParseDuration(l.text("ttl"))
		if err != nil {
			return nil, err
		}
	}
	for _, a := range l.args {
		if !a.quoted && (a.key == "refs" || a.key == "aliases" || a.key == "ttl" || a.key == "binds") {
			continue
		}
		if len(a.items) != 1 {
			return nil, fmt.Errorf("%s has no version", a.key)
		}
		r := &xds.Resource{Stamp: &xds.Stamp{Name: a.key, Refs: refs, Addresses: addresses}, Type: t, Body: []byte(a.items[0].text),
			Aliases: l.texts("aliases"), TTL: ttl, OnDemand: demand}
		r.Seal(a.items[0].text)
		set = append(set, r)
	}
	return set, nil
}

func addressesOf(l line) *[]xds.Address {
	var all []xds.Address
	for _, s := range l.texts("binds") {
		i := strings.LastIndexByte(s, ':')
		all = append(all, xds.Address{Port: s[i+1:], Host: s[:max(i, 0)]})
	}
	if all == nil {
		return nil
	}
	return &all
}

func refsOf(l line) ([]xds.Ref, error) {
	if !l.has("refs") {
		return nil, nil
	}
	refs := []xds.Ref{}
	for _, s := range l.texts("refs") {
		if s == "-" {
			continue
		}
		short, name, _ := strings.Cut(s, "/")
		t, err := typeOf(short)
		if err != nil || name == "" {
			return nil, fmt.Errorf("%s is not a reference: want TYPE/NAME", s)
		}
		refs = append(refs, xds.Ref{Type: t, Name: name})
	}
	return refs, nil
}
