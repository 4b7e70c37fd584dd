package diff

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// Dump returns the dynamic resources in an Envoy's config_dump (JSON), in their active versions. Envoy
// shows no secrets.
func Dump(types *envoy.Types, file string, src []byte) (*Side, error) {
	return read(types, file, src, false)
}

// Sent returns the resources that a server sent to a client, from the server's config_dump. Of a rejected
// resource it returns the rejected version, also if the dump has the version that the client keeps. Endpoints
// without an address count: the server sends them if all registered endpoints are removed.
func Sent(types *envoy.Types, file string, src []byte) (*Side, error) {
	return read(types, file, src, true)
}

func read(types *envoy.Types, file string, src []byte, refused bool) (*Side, error) {
	mt, err := types.FindMessageByName("envoy.admin.v3.ConfigDump")
	if err != nil {
		return nil, err
	}
	dump := mt.New()
	if err := (protojson.UnmarshalOptions{Resolver: types, DiscardUnknown: true}).Unmarshal(src, dump.Interface()); err != nil {
		return nil, fmt.Errorf("%s is not a config_dump of this Envoy API: %w", file, err)
	}
	configs := dump.Get(dump.Descriptor().Fields().ByName("configs")).List()
	if configs.Len() == 0 {
		return nil, fmt.Errorf("%s: a config_dump has a list \"configs\", and here it is missing or empty", file)
	}
	s, eds := NewSide(types, true), assigned{}
	if refused {
		s.states = append(s.states, "error_state")
	}
	s.states = append(s.states, "active_state", "warming_state")
	w := walker{types: types}
	for i := range configs.Len() {
		c := w.unpacked(configs.Get(i).Message())
		if c == nil {
			continue
		}
		c.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.Name() == "static_clusters" {
				for j := range v.List().Len() {
					eds.note(w, v.List().Get(j).Message())
				}
			}
			if !fd.IsList() || fd.Message() == nil || !dynamic[fd.Name()] {
				return true
			}
			for j := range v.List().Len() {
				eds.note(w, v.List().Get(j).Message())
				if refused {
					eds.noteRefused(w, v.List().Get(j).Message())
				}
				err = s.addEntry(w, v.List().Get(j).Message(), file)
				if err != nil {
					return false
				}
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	for k, r := range s.all {
		if r.Type.Is(xds.Endpoint) && (!eds[r.Name] || !refused && !hasEndpoints(r)) {
			delete(s.all, k)
		}
	}
	return s, nil
}

// assigned are the names of the endpoints that clusters request by EDS. An Envoy's dump has other endpoints too:
// inline ones, addresses from DNS, and empty ones of clusters that wait for their endpoints.
type assigned map[string]bool

// note records the name in the entry of a cluster.
func (a assigned) note(w walker, m protoreflect.Message) { a.noteIn(w, m, "cluster") }

// noteRefused records the name in the entry of a rejected cluster.
func (a assigned) noteRefused(w walker, m protoreflect.Message) {
	if fd := m.Descriptor().Fields().ByName("error_state"); fd != nil && m.Has(fd) {
		a.noteIn(w, m.Get(fd).Message(), "failed_configuration")
	}
}

func (a assigned) noteIn(w walker, m protoreflect.Message, field protoreflect.Name) {
	fd := m.Descriptor().Fields().ByName(field)
	if fd == nil || fd.Message() == nil || fd.Message().FullName() != "google.protobuf.Any" {
		return
	}
	c := w.unpacked(m.Get(fd).Message())
	if c == nil || string(c.Descriptor().FullName()) != clusterName {
		return
	}
	fds := c.Descriptor().Fields()
	config := fds.ByName("eds_cluster_config")
	if !c.Has(config) {
		return
	}
	in := c.Get(config).Message()
	name := in.Get(in.Descriptor().Fields().ByName("service_name")).String()
	if name == "" {
		name = c.Get(fds.ByName("name")).String()
	}
	a[name] = true
}

const clusterName = "envoy.config.cluster.v3.Cluster"

// hasEndpoints reports whether a ClusterLoadAssignment has endpoints.
func hasEndpoints(r Resource) bool {
	if r.shown == nil {
		return true
	}
	m := asDumped(r.shown).ProtoReflect()
	fd := m.Descriptor().Fields().ByName("endpoints")
	return fd == nil || m.Get(fd).List().Len() > 0
}

// dynamic are the fields of a dump with resources from a server.
var dynamic = map[protoreflect.Name]bool{
	"dynamic_active_clusters": true, "dynamic_warming_clusters": true, "dynamic_listeners": true, "dynamic_route_configs": true,
	"dynamic_scoped_route_configs": true, "dynamic_endpoint_configs": true, "dynamic_active_secrets": true, "dynamic_warming_secrets": true,
	"ecds_filters": true,
}

// addEntry adds the resources in an entry. The resource of a listener is inside one of its states. An
// error_state without the rejected version does not count.
func (s *Side) addEntry(w walker, m protoreflect.Message, file string) error {
	fds := m.Descriptor().Fields()
	for _, state := range s.states {
		fd := fds.ByName(state)
		if fd == nil || !m.Has(fd) {
			continue
		}
		in := m.Get(fd).Message()
		if failed := in.Descriptor().Fields().ByName("failed_configuration"); failed == nil || in.Has(failed) {
			return s.addEntry(w, in, file)
		}
	}
	var err error
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil || fd.Message().FullName() != "google.protobuf.Any":
		case fd.IsList():
			for i := range v.List().Len() {
				err = errors.Join(err, s.addAny(w, v.List().Get(i).Message(), file))
			}
		default:
			err = errors.Join(err, s.addAny(w, v.Message(), file))
		}
		return err == nil
	})
	return err
}

// addAny adds the resource in an Any.
func (s *Side) addAny(w walker, m protoreflect.Message, file string) error {
	inner := w.unpacked(m)
	if inner == nil {
		return fmt.Errorf("%s: a resource of type %q cannot be read", file, m.Get(m.Descriptor().Fields().ByName("type_url")).String())
	}
	t := xds.TypeOf("type.googleapis.com/" + string(inner.Descriptor().FullName()))
	fd := inner.Descriptor().Fields().ByName(protoreflect.Name(t.Name))
	if fd == nil {
		return nil // without a name, so not from a server
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner.Interface())
	if err != nil {
		return err
	}
	s.Add(Resource{Type: t, Name: inner.Get(fd).String(), Place: file}, b)
	return nil
}
