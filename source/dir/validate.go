package dir

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// refused reports what Envoy would refuse in a resource, if that is looked for.
func (d *decoder) refused(l *Loaded, n *yaml.Node, path string, m proto.Message) {
	if d.validator == nil || l.Type.V2 {
		return
	}
	if l.Type.Is(xds.Listener) {
		l.sockets = socketsOf(m.ProtoReflect())
		for i, s := range l.sockets {
			at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), s.at.Path)
			l.sockets[i].at = Pos{l.File, at.Node.Line, at.Node.Column, whole}
		}
	}
	if l.Type.Is(xds.Listener) && strings.HasPrefix(l.Name, serversTemplate) {
		return // gRPC's servers do not want all that Envoy's API demands
	}
	before := d.Errors()
	defer func() { l.refused = d.Errors() > before }()
	for _, v := range d.validator.Validate(m) {
		at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), v.Path)
		d.ReportAt(at, v.Code, whole, v.Hint, v.Message)
	}
}

// place returns where a field of a resource stands, and its path in the document. The
// node and the path are those of the resource, or of what it is wrapped in.
func (d *decoder) place(n *yaml.Node, path string, md protoreflect.MessageDescriptor, below string) (at protoyaml.Place, whole string) {
	if url := protoyaml.Get(n, "@type"); url != nil && url.Value == wrapper {
		path = strings.TrimPrefix(path+".resource", ".")
		if n = protoyaml.Get(n, "resource"); n == nil {
			n = &yaml.Node{}
		}
	}
	return d.Place(n, md, below), strings.Trim(path+"."+below, ".")
}

// A socket is what a listener listens on, such as "TCP 127.0.0.1:80".
type socket struct {
	name string
	at   Pos // of the address
}

// socketsOf returns those of a listener, with paths for places; nothing for what the system
// chooses, and for what proxies do not listen on.
func socketsOf(listener protoreflect.Message) (all []socket) {
	if listener.Has(listener.Descriptor().Fields().ByName("api_listener")) {
		return nil
	}
	add := func(address protoreflect.Message, path string) {
		f := address.Descriptor().Fields().ByName("socket_address")
		if !address.Has(f) {
			return
		}
		at := address.Get(f).Message()
		port := get(at, "port_value").Uint()
		if port == 0 {
			return
		}
		protocol := "TCP"
		if get(at, "protocol").Enum() == 1 {
			protocol = "UDP"
		}
		host := get(at, "address").String()
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if in := get(at, "network_namespace_filepath").String(); in != "" {
			protocol += " in " + in
		}
		all = append(all, socket{fmt.Sprintf("%s %s:%d", protocol, host, port), Pos{Path: path + ".socket_address"}})
	}
	if f := listener.Descriptor().Fields().ByName("address"); listener.Has(f) {
		add(listener.Get(f).Message(), "address")
	}
	more := get(listener, "additional_addresses").List()
	for i := range more.Len() {
		add(get(more.Get(i).Message(), "address").Message(), fmt.Sprintf("additional_addresses[%d].address", i))
	}
	return all
}

// serversTemplate begins the names of listeners of gRPC servers, of which each server asks
// for its own: they may well have one socket on several machines.
const serversTemplate = "grpc/server"

// Sockets are what the listeners of a group listen on.
type sockets struct {
	listeners map[string]Loaded // by name
	on        map[string]Loaded // by socket, the first
	errs      []findings.Problem
}

// sockets returns those of a world, with a mistake for each listener on the socket of another.
func (w world) sockets() (s sockets) {
	c := w.types[xds.Listener.URL]
	if c == nil {
		return s
	}
	s.listeners, s.on = c.at, map[string]Loaded{}
	for _, name := range slices.Sorted(maps.Keys(c.at)) {
		l := c.at[name]
		if strings.HasPrefix(name, serversTemplate) {
			continue
		}
		for _, at := range l.sockets {
			if other, twice := s.on[at.name]; twice {
				s.errs = append(s.errs, at.taken(l, other, ""))
			} else {
				s.on[at.name] = l
			}
		}
	}
	return s
}

// taken is the mistake of a listener on a socket that another has.
func (at socket) taken(l, by Loaded, hint string) findings.Problem {
	p := at.at.problem("%s %q listens on %s, and so does %q at %s", l.Type, l.Name, at.name, by.Name, by.Pos)
	p.Path, p.Code, p.Hint = at.at.Path, findings.DuplicateSocket, hint
	return p
}

// sharing blames groups for listeners on the sockets of others that a node gets with them: for
// those of its own, and for those that it brings together by what it includes.
func (p *plan) sharing() {
	known := map[string]sockets{}
	of := func(group string) sockets {
		s, ok := known[group]
		if !ok {
			w, ok := p.next[group]
			if was := p.parts[group]; !ok && was != nil { // it is kept
				w = was.world
			}
			s = w.sockets()
			known[group] = s
		}
		return s
	}
	together, bring := p.layout.together(), map[string][]string{}
	for group := range p.next {
		bring[group] = together.Includes(group)
	}
	told := map[[2]string]bool{} // of two groups, by who brings in fewest
	for _, group := range slices.SortedFunc(maps.Keys(p.next), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(bring[a]), len(bring[b])), byGroup(a, b))
	}) {
		p.blame(group, of(group).errs...)
		all := bring[group]
		for n, second := range all {
			for i, first := range all[:n] {
				pair := [2]string{min(first, second), max(first, second)}
				if told[pair] {
					continue
				}
				hidden := func(name string, behind int) bool { // of one name a node gets the first
					return slices.ContainsFunc(all[:behind], func(g string) bool { _, is := of(g).listeners[name]; return is })
				}
				for _, c := range clashes(of(first), of(second)) {
					if !hidden(c.a.Name, i) && !hidden(c.b.Name, n) {
						told[pair] = true
						p.blame(group, c.taken(c.a, c.b, fmt.Sprintf("nodes of group %q get both", group)))
					}
				}
			}
		}
	}
}

// A clash is a socket on which a listener listens, and another of another group.
type clash struct {
	socket
	a, b Loaded // the socket is where a says it
}

// clashes returns those of two groups.
func clashes(a, b sockets) (all []clash) {
	turned := len(a.on) < len(b.on)
	if turned {
		a, b = b, a
	}
	for name := range b.on {
		if other, taken := a.on[name]; taken {
			c := clash{a: other, b: b.on[name]}
			if turned {
				c.a, c.b = c.b, c.a
			}
			c.socket = c.a.sockets[slices.IndexFunc(c.a.sockets, func(s socket) bool { return s.name == name })]
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(x, y clash) int { return cmp.Compare(x.name, y.name) })
	return all
}
