package diff

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// inPlace are the listener fields that Envoy updates without replacing the listener ("Filter chain only
// update"). Envoy 1.16 and later does this for all listeners.
// https://www.envoyproxy.io/docs/envoy/latest/configuration/listeners/lds
var inPlace = []protoreflect.Name{"filter_chains", "default_filter_chain", "filter_chain_matcher"}

// drains returns what Envoy drains when a listener is removed or changed; nil: nothing.
func drains(types *envoy.Types, kind string, was, is Resource, shown bool) *Draining {
	switch {
	case kind == Added || !was.Type.Is(xds.Listener):
		return nil
	case kind == Removed:
		return &Draining{Whole: true}
	}
	a, b := was.shown, is.shown
	if !shown { // secrets may be the only difference
		a, b = decoded(types, was), decoded(types, is)
	}
	if a == nil || b == nil || a.ProtoReflect().Descriptor().FullName() != b.ProtoReflect().Descriptor().FullName() || !onlyChains(a, b) {
		return &Draining{Whole: true}
	}
	if gone := drainedChains(a.ProtoReflect(), b.ProtoReflect()); len(gone) > 0 {
		return &Draining{Chains: gone}
	}
	return nil
}

func decoded(types *envoy.Types, r Resource) proto.Message {
	mt, err := types.FindMessageByURL(r.Type.URL)
	if err != nil {
		return nil
	}
	m := mt.New().Interface()
	if (proto.UnmarshalOptions{Resolver: types}).Unmarshal(r.body, m) != nil {
		return nil
	}
	return m
}

// onlyChains reports whether Envoy can update a listener in place. Envoy always replaces a listener
// without chains, such as a UDP listener, and a listener whose first chain starts or stops expecting
// the PROXY protocol.
func onlyChains(a, b proto.Message) bool {
	x, y := proto.Clone(a), proto.Clone(b)
	if len(chainsOf(y.ProtoReflect())) == 0 || proxied(x.ProtoReflect()) != proxied(y.ProtoReflect()) {
		return false
	}
	for _, m := range []proto.Message{x, y} {
		for _, name := range inPlace {
			if fd := m.ProtoReflect().Descriptor().Fields().ByName(name); fd != nil {
				m.ProtoReflect().Clear(fd)
			}
		}
	}
	return proto.Equal(x, y)
}

func chainsOf(m protoreflect.Message) (all []protoreflect.Message) {
	l := m.Get(m.Descriptor().Fields().ByName("filter_chains")).List()
	for i := range l.Len() {
		all = append(all, l.Get(i).Message())
	}
	return all
}

// proxied reports whether the first chain of a listener expects the PROXY protocol.
func proxied(m protoreflect.Message) bool {
	all := chainsOf(m)
	if len(all) == 0 {
		return false
	}
	v := all[0].Get(all[0].Descriptor().Fields().ByName("use_proxy_proto")).Message()
	return v.IsValid() && v.Get(v.Descriptor().Fields().ByName("value")).Bool()
}

// drainedChains returns the chains of a that b lacks or changes. Envoy identifies a chain by its whole
// message.
func drainedChains(a, b protoreflect.Message) (gone []string) {
	left := chainsOf(b)
	for i, c := range chainsOf(a) {
		if slices.ContainsFunc(left, func(o protoreflect.Message) bool { return proto.Equal(c.Interface(), o.Interface()) }) {
			continue
		}
		name := c.Get(c.Descriptor().Fields().ByName("name")).String()
		if name == "" {
			name = "filter_chains[" + strconv.Itoa(i) + "]"
		}
		gone = append(gone, name)
	}
	fd := a.Descriptor().Fields().ByName("default_filter_chain")
	if a.Has(fd) && (!b.Has(fd) || !proto.Equal(a.Get(fd).Message().Interface(), b.Get(fd).Message().Interface())) {
		gone = append(gone, "default_filter_chain")
	}
	return gone
}
