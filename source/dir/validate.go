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
	for _, v := range d.validator.Review(m, d.maxProgram) {
		at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), v.Path)
		if v.Code == findings.LargeRegex {
			d.WarnAt(at, v.Code, whole, v.Hint, v.Message)
			continue
		}
		d.ReportAt(at, v.Code, whole, v.Hint, v.Message)
	}
}

// claims records the claims of a resource with their places.
func (d *decoder) claims(l *Loaded, n *yaml.Node, path string, m proto.Message) {
	switch {
	case l.Type.V2:
	case l.Type.Is(xds.Listener):
		l.claims = socketsOf(m.ProtoReflect())
	case l.Type.Is(xds.Route), l.Type.Is(xds.VirtualHost):
		l.claims = domainsOf(l, m.ProtoReflect())
	}
	for i, c := range l.claims {
		at, whole := d.place(n, path, m.ProtoReflect().Descriptor(), c.at.Path)
		l.claims[i].at = Pos{l.File, at.Node.Line, at.Node.Column, whole}
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

// A claim is something that only one resource of a node may have: a socket of a listener, such as "TCP 127.0.0.1:80",
// or a domain of a route configuration with VHDS.
type claim struct {
	name string
	at   Pos // place of the address or domain
}

// domainsOf returns the domains of a virtual host for VHDS, or of a route configuration that gets more virtual
// hosts by VHDS, each with its path as place. Envoy merges them, and a domain may be there only once.
func domainsOf(l *Loaded, m protoreflect.Message) (all []claim) {
	route := l.Name
	add := func(host protoreflect.Message, path string) {
		domains := get(host, "domains").List()
		for i := range domains.Len() {
			all = append(all, claim{fmt.Sprintf("domain %q of %q", strings.ToLower(domains.Get(i).String()), route), Pos{Path: fmt.Sprintf("%sdomains[%d]", path, i)}})
		}
	}
	if l.Type.Is(xds.VirtualHost) {
		route = route[:max(0, strings.LastIndexByte(route, '/'))]
		add(m, "")
	} else if m.Has(m.Descriptor().Fields().ByName("vhds")) {
		hosts := get(m, "virtual_hosts").List()
		for i := range hosts.Len() {
			add(hosts.Get(i).Message(), fmt.Sprintf("virtual_hosts[%d].", i))
		}
	}
	return all
}

// SocketAt returns the place of the address of a listener that a text names, such as "127.0.0.1:80", or else of its
// first address. It returns false if the listener has none.
func (l Loaded) SocketAt(text string) (at Pos, ok bool) {
	if !l.Type.Is(xds.Listener) {
		return at, false
	}
	for _, s := range l.claims {
		if !ok || strings.Contains(text, s.name[strings.LastIndexByte(s.name, ' ')+1:]) {
			at, ok = s.at, true
		}
	}
	return at, ok
}

// socketsOf returns the sockets of a listener, each with its path as place. It leaves out ports that
// the system chooses, and listeners of proxyless clients (api_listener).
func socketsOf(listener protoreflect.Message) (all []claim) {
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
		all = append(all, claim{fmt.Sprintf("%s %s:%d", protocol, host, port), Pos{Path: path + ".socket_address"}})
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

// A claimed has the claims of the resources of a group.
type claimed struct {
	groupContent
	by   map[string]Loaded // by the name of the claim; the first resource
	errs []findings.Problem
}

// claimed returns the claims of a group, with a mistake for each claim of two resources.
func (w groupContent) claimed() claimed {
	s := claimed{groupContent: w, by: map[string]Loaded{}}
	for _, t := range []*xds.Type{xds.Listener, xds.Route, xds.VirtualHost} {
		c := w.types[t.URL]
		if c == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.at)) {
			l := c.at[name]
			if t.Is(xds.Listener) && strings.HasPrefix(name, serversTemplate) {
				continue
			}
			for _, at := range l.claims {
				other, twice := s.by[at.name]
				switch {
				case !twice:
					s.by[at.name] = l
				case t.Is(xds.Route) && other.Name == l.Name && other.Type == l.Type: // the check of the message finds it
				default:
					s.errs = append(s.errs, at.taken(l, other, ""))
				}
			}
		}
	}
	return s
}

// taken returns the mistake that two resources have the same claim.
func (at claim) taken(l, by Loaded, hint string) findings.Problem {
	p := at.at.problem("%s %q listens on %s, and so does %q at %s", l.Type, l.Name, at.name, by.Name, by.Pos)
	p.Code = findings.DuplicateSocket
	if !l.Type.Is(xds.Listener) {
		p = at.at.problem("%s is in %s %q, and also in %s %q at %s", at.name, l.Type, l.Name, by.Type, by.Name, by.Pos)
		p.Code = findings.DuplicateDomain
	}
	p.Path, p.Hint = at.at.Path, hint
	return p
}

// checkClaims blames groups for resources with the same claim if a node gets both. It finds pairs in the
// group itself, and pairs that the group brings together by the groups that it includes.
func (p *plan) checkClaims() {
	known := map[string]claimed{}
	of := func(group string) claimed {
		s, ok := known[group]
		if !ok {
			w, planned := p.next[group]
			was := p.parts[group]
			if !planned && was != nil { // the group is rejected and keeps its content
				w = was.content
			}
			s = w.claimed()
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
				hidden := func(l Loaded, behind int) bool { // of two resources with one name a node gets the first
					return slices.ContainsFunc(all[:behind], func(g string) bool { _, is := of(g).find(l.Type, l.Name); return is })
				}
				for _, c := range clashes(of(first), of(second)) {
					if !hidden(c.a, i) && !hidden(c.b, n) {
						told[pair] = true
						p.blame(group, c.taken(c.a, c.b, fmt.Sprintf("nodes of group %q get both", group)))
					}
				}
			}
		}
	}
}

// A clash is a claim of two resources of different groups.
type clash struct {
	claim
	a, b Loaded // the place of the claim is in a
}

// clashes returns the claims that two groups have in common.
func clashes(a, b claimed) (all []clash) {
	turned := len(a.by) < len(b.by)
	if turned {
		a, b = b, a
	}
	for name := range b.by {
		if other, taken := a.by[name]; taken {
			c := clash{a: other, b: b.by[name]}
			if turned {
				c.a, c.b = c.b, c.a
			}
			c.claim = c.a.claims[slices.IndexFunc(c.a.claims, func(s claim) bool { return s.name == name })]
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(x, y clash) int { return cmp.Compare(x.name, y.name) })
	return all
}
