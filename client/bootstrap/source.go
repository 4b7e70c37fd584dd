package bootstrap

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Source makes a configuration of a ConfigSource (envoy.config.core.v3.ConfigSource, generated or
// of descriptors) that leads to a file or to a server whose address is in it. At is what errors
// call it. Node is who the client is.
func Source(at string, source proto.Message, node *xds.Node, o Options) (*client.Config, error) {
	own := xds.Node{}
	if node != nil {
		own = *node
	}
	o.sign(&own)
	return (&EnvoyConfig{Node: &own, m: &maker{Options: o, file: at}}).Source("", source, nil)
}

// Source says where a resource comes from that another one names, by the ConfigSource that
// stands beside the name there: "ads" is [EnvoyConfig.ADS]; "self" is where the resource around it
// is from, which is around; a path, and an api_config_source whose cluster is a static one of the
// bootstrap, are configurations of their own. At is the path of the source, for errors. It may be
// called by several at a time.
//
// What "ads" and "self" lead to has the transports of the configuration that is there already, and
// [client.New] takes transports over: one client is for all of them.
func (e *EnvoyConfig) Source(at string, source proto.Message, around *client.Config) (*client.Config, error) {
	own := *e.m // of this call: what it makes is closed if it ends with an error
	own.made = nil
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

// Source says where a resource comes from that another one names: gRPC takes resources from the
// servers of its bootstrap alone. "The ConfigSource must be ads or self"; anything else is an error.
// The transports are those of the bootstrap, which [client.New] takes over: one client is for both.
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
		return nil, (&maker{file: "gRPC"}).errorf(at, "the source is %q, and gRPC takes ads and self only", is)
	}
}

func (m *maker) sourceOf(at string, source proto.Message) (message, error) {
	if source == nil || source.ProtoReflect().Descriptor().FullName() != sourceName {
		return message{}, m.errorf(at, "a message %s is needed", sourceName)
	}
	return message{source.ProtoReflect(), at}, nil
}

func (e *EnvoyConfig) source(s message, around *client.Config) (*client.Config, error) {
	m := e.m
	if enum(s, "resource_api_version") == "V2" {
		return nil, m.errorf(s.field("resource_api_version"), "V2 is not supported: V3 is")
	}
	var c client.Config
	switch is := which(s, "config_source_specifier"); is {
	case "ads":
		if e.ADS == nil {
			return nil, m.errorf(s.field("ads"), "there is no ads_config")
		}
		if at := sub(s, "initial_fetch_timeout"); !at.IsValid() {
			return e.ADS, nil
		}
		c = *e.ADS
	case "self":
		if around == nil {
			return nil, m.errorf(s.field("self"), "it is not known which server the resource around it is from")
		}
		if at := sub(s, "initial_fetch_timeout"); !at.IsValid() {
			return around, nil
		}
		c = *around
	case "path", "path_config_source":
		d := disk{path: str(s, "path"), log: m.Log}
		at := s.field(string(is))
		if is == "path_config_source" {
			p := sub(s, "path_config_source")
			d.path, d.watched = str(p, "path"), str(sub(p, "watched_directory"), "path")
			at += ".path"
		}
		if d.path == "" {
			return nil, m.errorf(at, "is empty")
		}
		t, err := m.of().file(d)
		if t, err = m.add(t, err, at); err != nil {
			return nil, err
		}
		c = client.Config{Node: e.Node, Servers: []client.Server{{Transport: t}}}
	case "api_config_source":
		servers, err := m.api(message{sub(s, "api_config_source"), s.field("api_config_source")}, perType)
		if err != nil {
			return nil, err
		}
		c = client.Config{Node: e.Node, Servers: servers}
	default:
		return nil, m.errorf(s.at, "says no source: path_config_source, api_config_source, ads or self")
	}
	c.Timeout = timeout(s, c.Timeout)
	return &c, nil
}

// timeout returns how long the source waits for a resource. "0 means no timeout"; without one it
// is what it was.
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

// Whether an api_type without AGGREGATED means a stream for all types.
const aggregated, perType = true, false

// api returns the servers of an ApiConfigSource, the preferred one first.
func (m *maker) api(a message, ads bool) ([]client.Server, error) {
	// "AUTO" was v2, which is gone.
	if v := enum(a, "transport_api_version"); v != "V3" {
		return nil, m.errorf(a.field("transport_api_version"), "%s is not supported: V3 is", v)
	}
	var r remote
	switch api := enum(a, "api_type"); api {
	case "GRPC", "DELTA_GRPC":
		r = remote{delta: api == "DELTA_GRPC", perType: !ads}
	case "AGGREGATED_GRPC", "AGGREGATED_DELTA_GRPC":
		r = remote{delta: api == "AGGREGATED_DELTA_GRPC"}
	case "REST":
		if ads {
			return nil, m.errorf(a.field("api_type"), "REST has no aggregated form")
		}
		return m.polls(a)
	default:
		return nil, m.errorf(a.field("api_type"), "%s is not supported: GRPC, DELTA_GRPC, AGGREGATED_GRPC, AGGREGATED_DELTA_GRPC and REST are", api)
	}
	services := a.Get(a.Descriptor().Fields().ByName("grpc_services")).List()
	if services.Len() == 0 {
		return nil, m.errorf(a.field("grpc_services"), "there must be one or more")
	}
	var servers []client.Server
	for i := range services.Len() {
		s := message{services.Get(i).Message(), a.field("grpc_services") + "[" + strconv.Itoa(i) + "]"}
		some, err := m.service(s, r)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			t, err := m.of().grpc(r)
			if t, err = m.add(t, err, s.at); err != nil {
				return nil, err
			}
			servers = append(servers, client.Server{Transport: t})
		}
	}
	return servers, nil
}

// service returns how to reach a GrpcService: at one address, or at those of a cluster.
func (m *maker) service(s message, r remote) ([]remote, error) {
	headers, err := m.metadata(s)
	if err != nil {
		return nil, err
	}
	r.perRPC = headers
	switch which(s, "target_specifier") {
	case "envoy_grpc":
		at := message{sub(s, "envoy_grpc"), s.field("envoy_grpc")}
		c, err := m.cluster(str(at, "cluster_name"), at.field("cluster_name"))
		if err != nil {
			return nil, err
		}
		r.authority = str(at, "authority")
		var all []remote
		for _, target := range c.targets {
			of := r
			of.target, of.credentials = target, c.credentials("h2")
			all = append(all, of)
		}
		return all, nil
	case "google_grpc":
		at := message{sub(s, "google_grpc"), s.field("google_grpc")}
		if r.target = str(at, "target_uri"); r.target == "" {
			return nil, m.errorf(at.field("target_uri"), "is empty")
		}
		if err := m.google(at, &r); err != nil {
			return nil, err
		}
		return []remote{r}, nil
	}
	return nil, m.errorf(s.at, "says no server: envoy_grpc or google_grpc")
}

// metadata returns what is sent with each call: "Additional metadata to include in streams
// initiated to the GrpcService."
func (m *maker) metadata(s message) (headers credentialsList, err error) {
	all := s.Get(s.Descriptor().Fields().ByName("initial_metadata")).List()
	if all.Len() == 0 {
		return nil, nil
	}
	b := bearer{md: map[string]string{}}
	for i := range all.Len() {
		h := message{all.Get(i).Message(), s.field("initial_metadata") + "[" + strconv.Itoa(i) + "]"}
		if str(h, "key") == "" {
			return nil, m.errorf(h.field("key"), "is empty")
		}
		b.md[str(h, "key")] = str(h, "value")
	}
	return credentialsList{b}, nil
}

// polls returns the servers of a source of type REST.
func (m *maker) polls(a message) ([]client.Server, error) {
	names := a.Get(a.Descriptor().Fields().ByName("cluster_names")).List()
	if names.Len() == 0 {
		return nil, m.errorf(a.field("cluster_names"), "there must be one or more")
	}
	p := poll{every: duration(sub(a, "refresh_delay")), timeout: duration(sub(a, "request_timeout"))}
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
			t, err := m.of().rest(of)
			if t, err = m.add(t, err, at); err != nil {
				return nil, err
			}
			servers = append(servers, client.Server{Transport: t})
		}
	}
	return servers, nil
}
