package envoybinary

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// A place is the part of a bootstrap that can contain a resource.
type place int

const (
	none place = iota
	asCluster
	asListener
)

const (
	bootstrapName = "envoy.config.bootstrap.v3.Bootstrap"
	server        = "chancery-check" // the name of the management server's cluster, which Envoy does not connect to
	http          = "envoy.extensions.filters.http."
	tlsPackage    = "envoy.extensions.transport_sockets.tls.v3."
)

// kind returns the place of a resource.
func (a *checker) kind(r Resource) place {
	switch {
	case r.Type.Is(xds.Listener) && a.forGRPC(r):
	case r.Type.Is(xds.Cluster), r.Type.Is(xds.Endpoint) && !a.mentions(r, "leds_cluster_locality_config"):
		return asCluster
	case r.Type.Is(xds.Secret):
		return a.secretKind(r)
	case r.Type.Is(xds.Listener), r.Type.Is(xds.Route), r.Type.Is(xds.VirtualHost):
		return asListener
	case r.Type.Is(xds.ExtensionConfig) && strings.Contains(a.extension(r), "/"+http):
		return asListener
	}
	return none
}

// secretKind returns the place in which Envoy checks a secret. Envoy does not check a generic secret
// until a filter uses it.
func (a *checker) secretKind(r Resource) place {
	m, err := a.message(r)
	switch {
	case err != nil:
	case m.Has(field(m, "tls_certificate")), m.Has(field(m, "validation_context")):
		return asCluster
	case m.Has(field(m, "session_ticket_keys")): // only servers have session ticket keys
		return asListener
	}
	return none
}

// forGRPC reports whether a listener is for gRPC clients, not for Envoy.
func (a *checker) forGRPC(r Resource) bool {
	m, err := a.message(r)
	return err == nil && (m.Has(field(m, "api_listener")) || strings.HasPrefix(r.Name, "grpc/server"))
}

// mentions reports whether a locality of an assignment has a field.
func (a *checker) mentions(r Resource, field protoreflect.Name) bool {
	m, err := a.message(r)
	if err != nil {
		return false
	}
	all := get(m, "endpoints").List()
	for i := range all.Len() {
		l := all.Get(i).Message()
		if l.Has(l.Descriptor().Fields().ByName(field)) {
			return true
		}
	}
	return false
}

// extension returns the type URL of the settings in a TypedExtensionConfig.
func (a *checker) extension(r Resource) string {
	m, err := a.message(r)
	if err != nil {
		return ""
	}
	return get(get(m, "typed_config").Message(), "type_url").String()
}

func (a *checker) message(r Resource) (protoreflect.Message, error) {
	typ, err := a.types.FindMessageByURL(r.Type.URL)
	if err != nil {
		return nil, err
	}
	m := typ.New()
	return m, proto.UnmarshalOptions{Resolver: a.types}.Unmarshal(r.Body, m.Interface())
}

// bootstrap returns an encoded bootstrap with some of the resources, and a management server for
// sources of type ads.
func (a *checker) bootstrap(some []int) ([]byte, error) {
	b := builder{types: a.types}
	boot := a.types.New(bootstrapName)
	node := mutable(boot, "node")
	set(node, "id", server)
	set(node, "cluster", server)
	ads := mutable(mutable(boot, "dynamic_resources"), "ads_config")
	ads.Set(field(ads, "api_type"), protoreflect.ValueOfEnum(3)) // DELTA_GRPC: VHDS needs it
	set(mutable(item(ads, "grpc_services"), "envoy_grpc"), "cluster_name", server)
	b.static = mutable(boot, "static_resources")
	set(item(b.static, "clusters"), "name", server)
	a.addUserParts(boot)
	for _, r := range a.all {
		if r.Broken {
			set(item(b.static, "clusters"), "name", r.Name)
		}
	}
	for n, i := range some {
		if err := a.put(&b, n, a.all[i]); err != nil {
			return nil, err
		}
	}
	if b.internal { // Envoy accepts internal listeners only with this extension
		e := item(boot, "bootstrap_extensions")
		set(e, "name", "internal")
		b.setAny(mutable(e, "typed_config"), a.types.New("envoy.extensions.bootstrap.internal_listener.v3.InternalListener"))
	}
	if b.err != nil {
		return nil, b.err
	}
	return envoy.Marshal(boot)
}

// put adds a resource to a bootstrap. A bootstrap contains only clusters, listeners and secrets
// directly: put generates a cluster or listener with a numbered name around another resource.
func (a *checker) put(b *builder, n int, r Resource) error {
	m, err := a.message(r)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%d", server, n)
	value := protoreflect.ValueOfMessage(m)
	switch {
	case r.Type.Is(xds.Cluster):
		b.static.Mutable(field(b.static, "clusters")).List().Append(value)
	case r.Type.Is(xds.Listener):
		b.internal = b.internal || m.Has(field(m, "internal_listener"))
		b.static.Mutable(field(b.static, "listeners")).List().Append(value)
	case r.Type.Is(xds.Endpoint):
		c := item(b.static, "clusters")
		set(c, "name", name)
		c.Set(field(c, "load_assignment"), value)
	case r.Type.Is(xds.Secret):
		b.secret(name, m)
	case r.Type.Is(xds.Route):
		if validates := field(m, "validate_clusters"); !m.Has(validates) { // over xDS, unset means false
			m.Mutable(validates)
		}
		b.manager(name).Set(field(b.hcm, "route_config"), value)
		b.pack()
	case r.Type.Is(xds.VirtualHost):
		routes := mutable(b.manager(name), "route_config")
		routes.Mutable(field(routes, "validate_clusters"))
		routes.Mutable(field(routes, "virtual_hosts")).List().Append(value)
		b.pack()
	case r.Type.Is(xds.ExtensionConfig):
		filters := b.manager(name).Mutable(field(b.hcm, "http_filters")).List()
		f := filters.NewElement()
		set(f.Message(), "name", get(m, "name").String())
		f.Message().Set(field(f.Message(), "typed_config"), get(m, "typed_config"))
		router := filters.Get(0)
		filters.Set(0, f)
		filters.Append(router)
		b.manager(name)
		b.pack()
	}
	return nil
}

// A builder generates the surroundings of resources.
type builder struct {
	types  *envoy.Types
	static protoreflect.Message
	hcm    protoreflect.Message // of the current listener
	into   protoreflect.Message // the Any that will contain hcm
	err    error

	internal bool // the bootstrap has an internal listener
}

// manager starts a listener and returns its HttpConnectionManager. Until the next call of pack, it
// returns the same message.
func (b *builder) manager(name string) protoreflect.Message {
	if b.hcm != nil {
		return b.hcm
	}
	f := item(b.chain(name), "filters")
	set(f, "name", "http")
	b.into = mutable(f, "typed_config")
	b.hcm = b.types.New("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager")
	set(b.hcm, "stat_prefix", name)
	mutable(b.hcm, "route_config")
	router := item(b.hcm, "http_filters")
	set(router, "name", "router")
	b.setAny(mutable(router, "typed_config"), b.types.New(http+"router.v3.Router"))
	return b.hcm
}

// chain adds a listener and returns its filter chain.
func (b *builder) chain(name string) protoreflect.Message {
	l := item(b.static, "listeners")
	set(l, "name", name)
	socket := mutable(mutable(l, "address"), "socket_address")
	set(socket, "address", "127.0.0.1")
	socket.Set(field(socket, "port_value"), protoreflect.ValueOfUint32(0))
	return item(l, "filter_chains")
}

func (b *builder) pack() {
	b.setAny(b.into, b.hcm)
	b.hcm, b.into = nil, nil
}

func (b *builder) setAny(a, m protoreflect.Message) {
	body, err := envoy.Marshal(m)
	if err != nil {
		b.err = err
		return
	}
	set(a, "type_url", "type.googleapis.com/"+string(m.Descriptor().FullName()))
	a.Set(field(a, "value"), protoreflect.ValueOfBytes(body))
}

// secret adds a cluster or a listener that uses a secret, because Envoy does not check unused secrets.
func (b *builder) secret(name string, m protoreflect.Message) {
	if f := field(m, "session_ticket_keys"); m.Has(f) {
		tls := b.types.New(tlsPackage + "DownstreamTlsContext")
		tls.Set(field(tls, "session_ticket_keys"), m.Get(f))
		cert := item(mutable(tls, "common_tls_context"), "tls_certificate_sds_secret_configs") // required of a server
		set(cert, "name", name)
		mutable(mutable(cert, "sds_config"), "ads")
		b.transport(b.chain(name), tls)
		return
	}
	c := item(b.static, "clusters")
	set(c, "name", name)
	tls := b.types.New(tlsPackage + "UpstreamTlsContext")
	common := mutable(tls, "common_tls_context")
	switch {
	case m.Has(field(m, "tls_certificate")):
		common.Mutable(field(common, "tls_certificates")).List().Append(get(m, "tls_certificate"))
	case m.Has(field(m, "validation_context")):
		common.Set(field(common, "validation_context"), get(m, "validation_context"))
	}
	b.transport(c, tls)
}

// transport adds TLS to a cluster or a filter chain.
func (b *builder) transport(m, tls protoreflect.Message) {
	socket := mutable(m, "transport_socket")
	set(socket, "name", "tls")
	b.setAny(mutable(socket, "typed_config"), tls)
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(name)
}

func get(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(field(m, name))
}

func set(m protoreflect.Message, name protoreflect.Name, v string) {
	m.Set(field(m, name), protoreflect.ValueOfString(v))
}

func mutable(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	return m.Mutable(field(m, name)).Message()
}

// item appends an empty message to a list and returns the message.
func item(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	return m.Mutable(field(m, name)).List().AppendMutable().Message()
}
