package protocoltest

import (
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A faulty session is a good one with one fault.
type faulty struct {
	*protocol.Session
	respond  func(r *xds.Response)
	batch    func(rs []*xds.Response) []*xds.Response // what it sends instead of all its responses
	deadline func(time.Time) time.Time
	event    func(e *protocol.Event) bool // false drops the event
	deaf     bool                         // it ignores changes of which it gets a hint
	blind    bool                         // it sees no references
	inside   bool                         // it sees no references inside a type
	unnamed  bool                         // it does not know the user agent of the client
	slow     bool                         // its grace period is longer
	view     xds.View
}

func (f *faulty) Responses() iter.Seq[*xds.Response] {
	var out []*xds.Response
	for r := range f.Session.Responses() {
		c := *r
		c.Changes = &xds.Changes{Upserts: slices.Clone(r.Upserts), Removed: r.Removed, Beats: r.Beats, Absent: r.Absent, Missing: r.Missing, Together: r.Together}
		for i, x := range c.Upserts {
			if is := f.view.Table(c.Type).Lookup(x.Name); same(is, x) {
				c.Upserts[i] = is
			}
		}
		if f.respond != nil {
			f.respond(&c)
		}
		out = append(out, &c)
	}
	if f.batch != nil {
		out = f.batch(out)
	}
	return slices.Values(out)
}

func (f *faulty) Receive(req xds.Request) error {
	if f.unnamed && req.Node != nil {
		node := *req.Node
		node.UserAgentName = ""
		req.Node = &node
	}
	return f.Session.Receive(req)
}

func (f *faulty) Events() iter.Seq[protocol.Event] {
	return func(yield func(protocol.Event) bool) {
		for e := range f.Session.Events() {
			if (f.event == nil || f.event(&e)) && !yield(e) {
				return
			}
		}
	}
}

func (f *faulty) Deadline() time.Time {
	if f.deadline != nil {
		return f.deadline(f.Session.Deadline())
	}
	return f.Session.Deadline()
}

func (f *faulty) Change(view xds.View, touched []xds.Names) {
	if f.deaf && len(touched) > 0 {
		touched = []xds.Names{}
	}
	f.Session.Change(f.see(view), touched)
}

// see returns what the session sees of a view.
func (f *faulty) see(view xds.View) xds.View {
	f.view = view
	if !f.blind && !f.inside {
		return view
	}
	out := xds.Tables{}
	for _, k := range kinds {
		var set []*xds.Resource
		for r := range view.Table(k.typ()).All() {
			stamp := *r.Stamp
			if f.blind {
				stamp.Refs = []xds.Ref{}
			}
			stamp.Refs = slices.DeleteFunc(slices.Clone(stamp.Refs), func(ref xds.Ref) bool { return ref.Type.Is(r.Type) })
			set = append(set, &xds.Resource{Stamp: &stamp, Type: r.Type, Body: r.Body, Aliases: r.Aliases, OnDemand: r.OnDemand})
		}
		table, err := xds.NewTable(k.typ()).With(set)
		if err != nil {
			panic(err)
		}
		out[k.url] = table
	}
	return out
}

func opens(fault faulty) Open {
	return func(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) Session {
		f := fault
		if f.slow {
			opts.Grace = time.Minute
		}
		f.Session = protocol.NewSession(v, only, f.see(view), opts)
		return &f
	}
}
