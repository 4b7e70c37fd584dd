package bootstrap

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Source returns the configuration for a ConfigSource (a message envoy.config.core.v3.ConfigSource,
// generated or dynamic). The ConfigSource must contain a path, or a server with its address
// (google_grpc). The text of each error begins with the argument at. node identifies the client.
func Source(at string, source proto.Message, node *xds.Node, o Options) (*client.Config, error) {
	own := xds.Node{}
	if node != nil {
		own = *node
	}
	o.completeNode(&own)
	return (&EnvoyConfig{Node: &own, m: &maker{Options: o, file: at}}).Source("", source, nil)
}

// Source returns the configuration for a ConfigSource inside a resource:
//
//   - for "ads", [EnvoyConfig.ADS];
//   - for "self", around, which is the configuration of the resource that contains the source;
//   - for a path, and for an api_config_source with a static cluster of the bootstrap, a new one.
//
// at is the path of the source, for errors. Concurrent calls are allowed.
//
// The results for "ads" and "self" share the transports of the existing configuration. Since
// [client.New] takes over its transports, use one client for all of them.
func (e *EnvoyConfig) Source(at string, source proto.Message, around *client.Config) (*client.Config, error) {
	own := *e.m // this call closes its own transports after an error
	own.opened = nil
	m, err := own.sourceOf(at, source)
	if err != nil {
		return nil, err
	}
	c, err := (&EnvoyConfig{Node: e.Node, ADS: e.ADS, m: &own}).source(m, around)
	if err != nil {
		own.close()
	}
	return c, err
}

// Source returns the configuration for a ConfigSource inside a resource. gRPC gets all resources from
// the servers of its bootstrap: "The ConfigSource must be ads or self". Other sources are an error. The
// result shares the transports of the bootstrap. Since [client.New] takes over its transports, use one
// client for both.
func (c *GRPCConfig) Source(at string, source proto.Message) (*client.Config, error) {
	m, err := (&maker{file: "gRPC"}).sourceOf(at, source)
	if err != nil {
		return nil, err
	}
	switch is := which(m, "config_source_specifier"); is {
	case "ads", "self":
		own := c.Config
		own.Timeout = timeout(m, own.Timeout)
		return &own, nil
	default:
		return nil, (&maker{file: "gRPC"}).errorf(at, "the source is %q: gRPC supports only ads and self", is)
	}
}

func (m *maker) sourceOf(at string, source proto.Message) (located, error) {
	if source == nil || source.ProtoReflect().Descriptor().FullName() != sourceName {
		return located{}, m.errorf(at, "a message %s is needed", sourceName)
	}
	return located{source.ProtoReflect(), at}, nil
}

func (e *EnvoyConfig) source(s located, around *client.Config) (*client.Config, error) {
	m := e.m
	if enum(s, "resource_api_version") == "V2" {
		return nil, m.errorf(s.field("resource_api_version"), "V2 is not supported: use V3")
	}
	var c client.Config
	switch is := which(s, "config_source_specifier"); is {
	case "ads":
		if e.ADS == nil {
			return nil, m.errorf(s.field("ads"), "the bootstrap has no ads_config")
		}
		if at := sub(s, "initial_fetch_timeout"); !at.IsValid() {
			return e.ADS, nil
		}
		c = *e.ADS
	case "self":
		if around == nil {
			return nil, m.errorf(s.field("self"), "the server of the enclosing resource is unknown")
		}
		if at := sub(s, "initial_fetch_timeout"); !at.IsValid() {
			return around, nil
		}
		c = *around
	case "path", "path_config_source":
		d := fileSource{path: str(s, "path"), log: m.Log}
		at := s.field(string(is))
		if is == "path_config_source" {
			p := sub(s, "path_config_source")
			d.path, d.watched = str(p, "path"), str(sub(p, "watched_directory"), "path")
			at += ".path"
		}
		if d.path == "" {
			return nil, m.errorf(at, "is empty")
		}
		t, err := m.transports().file(d)
		t, err = m.add(t, err, at)
		if err != nil {
			return nil, err
		}
		c = client.Config{Node: e.Node, Servers: []client.Server{{Transport: t}}}
	case "api_config_source":
		servers, err := m.apiServers(located{sub(s, "api_config_source"), s.field("api_config_source")}, perType)
		if err != nil {
			return nil, err
		}
		c = client.Config{Node: e.Node, Servers: servers}
	default:
		return nil, m.errorf(s.path, "no source is set: use path_config_source, api_config_source, ads or self")
	}
	c.Timeout = timeout(s, c.Timeout)
	return &c, nil
}

// timeout returns how long the client waits for a resource: initial_fetch_timeout if it is set ("0
// means no timeout"), else was.
func timeout(source protoreflect.Message, was time.Duration) time.Duration {
	of := sub(source, "initial_fetch_timeout")
	if !of.IsValid() {
		return was
	}
	if d := duration(of); d > 0 {
		return d
	}
	return -1
}

// Whether an api_type without AGGREGATED selects one stream for all types.
const aggregated, perType = true, false

// apiServers returns the servers of an ApiConfigSource, in order of preference.
func (m *maker) apiServers(a located, ads bool) ([]client.Server, error) {
	// The default, AUTO, selected v2, which no longer exists.
	if v := enum(a, "transport_api_version"); v != "V3" {
		return nil, m.errorf(a.field("transport_api_version"), "%s is not supported: use V3", v)
	}
	var r grpcServer
	switch api := enum(a, "api_type"); api {
	case "GRPC", "DELTA_GRPC":
		r = grpcServer{delta: api == "DELTA_GRPC", perType: !ads}
	case "AGGREGATED_GRPC", "AGGREGATED_DELTA_GRPC":
		r = grpcServer{delta: api == "AGGREGATED_DELTA_GRPC"}
	case "REST":
		if ads {
			return nil, m.errorf(a.field("api_type"), "REST has no aggregated form")
		}
		return m.restServers(a)
	default:
		return nil, m.errorf(a.field("api_type"), "%s is not supported: use GRPC, DELTA_GRPC, AGGREGATED_GRPC, AGGREGATED_DELTA_GRPC or REST", api)
	}
	services := a.Get(a.Descriptor().Fields().ByName("grpc_services")).List()
	if services.Len() == 0 {
		return nil, m.errorf(a.field("grpc_services"), "at least one is needed")
	}
	var servers []client.Server
	for i := range services.Len() {
		s := located{services.Get(i).Message(), a.field("grpc_services") + "[" + strconv.Itoa(i) + "]"}
		some, err := m.grpcServers(s, r)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			t, err := m.transports().grpc(r)
			t, err = m.add(t, err, s.path)
			if err != nil {
				return nil, err
			}
			servers = append(servers, client.Server{Transport: t})
		}
	}
	return servers, nil
}

// grpcServers returns the servers of a GrpcService: one address, or those of a cluster.
func (m *maker) grpcServers(s located, r grpcServer) ([]grpcServer, error) {
	headers, err := m.metadata(s)
	if err != nil {
		return nil, err
	}
	r.perRPC = headers
	switch which(s, "target_specifier") {
	case "envoy_grpc":
		at := located{sub(s, "envoy_grpc"), s.field("envoy_grpc")}
		c, err := m.cluster(str(at, "cluster_name"), at.field("cluster_name"))
		if err != nil {
			return nil, err
		}
		r.authority = str(at, "authority")
		var all []grpcServer
		for _, target := range c.targets {
			of := r
			of.target, of.credentials = target, c.credentials("h2")
			all = append(all, of)
		}
		return all, nil
	case "google_grpc":
		at := located{sub(s, "google_grpc"), s.field("google_grpc")}
		r.target = str(at, "target_uri")
		if r.target == "" {
			return nil, m.errorf(at.field("target_uri"), "is empty")
		}
		if err := m.google(at, &r); err != nil {
			return nil, err
		}
		return []grpcServer{r}, nil
	}
	return nil, m.errorf(s.path, "no server is set: use envoy_grpc or google_grpc")
}

// metadata returns the metadata for each call: "Additional metadata to include in streams initiated to
// the GrpcService."
func (m *maker) metadata(s located) (headers credentialsList, err error) {
	all := s.Get(s.Descriptor().Fields().ByName("initial_metadata")).List()
	if all.Len() == 0 {
		return nil, nil
	}
	b := bearer{md: map[string]string{}}
	for i := range all.Len() {
		h := located{all.Get(i).Message(), s.field("initial_metadata") + "[" + strconv.Itoa(i) + "]"}
		if str(h, "key") == "" {
			return nil, m.errorf(h.field("key"), "is empty")
		}
		b.md[str(h, "key")] = str(h, "value")
	}
	return credentialsList{b}, nil
}

// restServers returns the servers of a source of type REST.
func (m *maker) restServers(a located) ([]client.Server, error) {
	names := a.Get(a.Descriptor().Fields().ByName("cluster_names")).List()
	if names.Len() == 0 {
		return nil, m.errorf(a.field("cluster_names"), "at least one is needed")
	}
	p := restServer{every: duration(sub(a, "refresh_delay")), timeout: duration(sub(a, "request_timeout"))}
	if p.every <= 0 {
		return nil, m.errorf(a.field("refresh_delay"), "must be set and positive for REST")
	}
	var servers []client.Server
	for i := range names.Len() {
		at := a.field("cluster_names") + "[" + strconv.Itoa(i) + "]"
		c, err := m.cluster(names.Get(i).String(), at)
		if err != nil {
			return nil, err
		}
		for _, url := range c.urls() {
			of := p
			of.url, of.unix, of.tls = url.url, url.unix, c.config("http/1.1")
			t, err := m.transports().rest(of)
			t, err = m.add(t, err, at)
			if err != nil {
				return nil, err
			}
			servers = append(servers, client.Server{Transport: t})
		}
	}
	return servers, nil
}
