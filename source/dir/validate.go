package dir

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// refused reports the reasons for which Envoy would refuse a resource, if Options.Validate is set.
func (d *decoder) refused(l *Loaded, n *yaml.Node, path string, m proto.Message) {
	if d.validator == nil || !mayViolate(*l) {
		return
	}
	before := d.Errors()
	defer func() { l.refused = d.Errors() > before }()
	for _, v := range d.validator.Review(m) {
		at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), v.Path)
		if v.Code == findings.LargeRegex {
			d.WarnAt(at, v.Code, whole, v.Hint, v.Message)
			continue
		}
		d.ReportAt(at, v.Code, whole, v.Hint, v.Message)
	}
}

// sockets records the sockets of a listener with their places.
func (d *decoder) sockets(l *Loaded, n *yaml.Node, path string, m proto.Message) {
	if l.Type.V2 || !l.Type.Is(xds.Listener) {
		return
	}
	l.sockets = socketsOf(m.ProtoReflect())
	for i, s := range l.sockets {
		at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), s.at.Path)
		l.sockets[i].at = Pos{l.File, at.Node.Line, at.Node.Column, whole}
	}
}

// place returns the place of a field of a resource, and its path in the document. The node and the
// path are those of the resource, or of its wrapper.
func (d *decoder) place(n *yaml.Node, path string, md protoreflect.MessageDescriptor, below string) (at protoyaml.Place, whole string) {
	if url := protoyaml.Get(n, "@type"); url != nil && url.Value == wrapper {
		path = strings.TrimPrefix(path+".resource", ".")
		n = cmp.Or(protoyaml.Get(n, "resource"), &yaml.Node{})
	}
	return d.Place(n, md, below), strings.Trim(path+"."+below, ".")
}

// A socket is an address on which a listener listens, such as "TCP 127.0.0.1:80".
type socket struct {
	name string
	at   Pos // place of the address
}

// SocketAt returns the place of the address of a listener that a text names, such as "127.0.0.1:80", or else of its
// first address. It returns false if the listener has none.
func (l Loaded) SocketAt(text string) (at Pos, ok bool) {
	for _, s := range l.sockets {
		if !ok || strings.Contains(text, s.name[strings.LastIndexByte(s.name, ' ')+1:]) {
			at, ok = s.at, true
		}
	}
	return at, ok
}

// socketsOf returns the sockets of a listener, each with its path as place. It leaves out ports that
// the system chooses, and listeners of proxyless clients (api_listener).
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
		ip, err := netip.ParseAddr(host)
		if err == nil {
			host = ip.String() // one form of each IPv6 address
		}
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

// serversTemplate begins the names of listeners of gRPC servers. Each server subscribes to its own, so
// several listeners may have the same socket on different machines.
const serversTemplate = "grpc/server"

// Sockets has the listeners of a group and their sockets.
type sockets struct {
	listeners map[string]Loaded // by name
	on        map[string]Loaded // by socket; the first listener
	errs      []findings.Problem
}

// sockets returns the sockets of a group, with a mistake for each listener on the socket of another
// one.
func (w groupContent) sockets() (s sockets) {
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

// taken returns the mistake that two listeners have the same socket.
func (at socket) taken(l, by Loaded, hint string) findings.Problem {
	p := at.at.problem("%s %q listens on %s, and so does %q at %s", l.Type, l.Name, at.name, by.Name, by.Pos)
	p.Path, p.Code, p.Hint = at.at.Path, findings.DuplicateSocket, hint
	return p
}

// checkSockets blames groups for listeners on the same socket if a node gets both. It finds pairs in the
// group itself, and pairs that the group brings together by the groups that it includes.
func (p *plan) checkSockets() {
	known := map[string]sockets{}
	of := func(group string) sockets {
		s, ok := known[group]
		if !ok {
			w, planned := p.next[group]
			was := p.parts[group]
			if !planned && was != nil { // the group is rejected and keeps its content
				w = was.content
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
	told := map[[2]string]bool{} // pairs of groups that were reported, by the group that includes the fewest
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
				hidden := func(name string, behind int) bool { // of two listeners with one name a node gets the first
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

// A clash is a socket on which two listeners of different groups listen.
type clash struct {
	socket
	a, b Loaded // the place of the socket is in a
}

// clashes returns the sockets that two groups have in common.
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
