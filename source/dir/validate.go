package dir

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/xds"
)

// refused reports what Envoy would refuse in a resource, if that is looked for.
func (d *decoder) refused(l *Loaded, n *yaml.Node, path string, m proto.Message) {
	if d.validator == nil || l.Type.V2 {
		return
	}
	if l.Type.Is(xds.Listener) {
		l.sockets = sockets(m.ProtoReflect())
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
func (d *decoder) place(n *yaml.Node, path string, md protoreflect.MessageDescriptor, below string) (at protofile.Place, whole string) {
	if url := protofile.Get(n, "@type"); url != nil && url.Value == wrapper {
		path = strings.TrimPrefix(path+".resource", ".")
		if n = protofile.Get(n, "resource"); n == nil {
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

// sockets returns those of a listener, with paths for places; nothing for what the system
// chooses, and for what proxies do not listen on.
func sockets(listener protoreflect.Message) (all []socket) {
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

// sharing returns a mistake for each listener on the socket of another.
func (w world) sharing() (errs []findings.Problem) {
	c := w.types[xds.Listener.URL]
	if c == nil {
		return nil
	}
	first := map[string]Loaded{}
	for _, name := range slices.Sorted(maps.Keys(c.at)) {
		l := c.at[name]
		if strings.HasPrefix(name, serversTemplate) {
			continue
		}
		for _, s := range l.sockets {
			other, twice := first[s.name]
			if !twice {
				first[s.name] = l
				continue
			}
			p := s.at.problem("%s %q listens on %s, and so does %q at %s", l.Type, name, s.name, other.Name, other.Pos)
			p.Path, p.Code = s.at.Path, findings.Socket
			errs = append(errs, p)
		}
	}
	return errs
}
