package bootstrap

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	http "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// everything sets an option of each kind.
var everything = Options{
	Node: "edge-1", Cluster: "edge", Server: "xds.example:18000", Delta: true, Admin: "127.0.0.1:0",
	TLS: &TLS{CA: "/tls/ca.crt", Cert: "/tls/tls.crt", Key: "/tls/tls.key"},
}

// parse decodes a bootstrap strictly: no unknown fields at any depth, and all rules of the API hold.
func parse(t *testing.T, o Options) *bootstrapv3.Bootstrap {
	t.Helper()
	b, err := Envoy(o)
	if err != nil {
		t.Fatal(err)
	}
	var m bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if err := m.ValidateAll(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return &m
}

func unpack[M interface {
	proto.Message
	ValidateAll() error
}](t *testing.T, a *anypb.Any, into M) M {
	t.Helper()
	if err := a.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
	if err := into.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestEnvoy(t *testing.T) {
	m := parse(t, Options{Node: "a", Server: "[::1]:18000"})
	if m.Node.Id != "a" || m.Node.Cluster != DefaultCluster {
		t.Errorf("node %v", m.Node)
	}
	if a := m.Admin.Address.GetSocketAddress(); a.Address != "127.0.0.1" || a.GetPortValue() != 9901 {
		t.Errorf("admin %v", a)
	}
	if n := len(m.StaticResources.Clusters); n != 1 {
		t.Fatalf("%d clusters", n)
	}
	c := m.StaticResources.Clusters[0]
	if c.GetType() != cluster.Cluster_STATIC || c.TransportSocket != nil {
		t.Errorf("cluster %v", c)
	}
	a := c.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress()
	if a.Address != "::1" || a.GetPortValue() != 18000 {
		t.Errorf("server %v", a)
	}
	keep := c.UpstreamConnectionOptions.TcpKeepalive
	if keep.KeepaliveTime.GetValue() != 30 || keep.KeepaliveInterval.GetValue() != 5 || keep.KeepaliveProbes.GetValue() != 3 {
		t.Errorf("TCP keepalive %v", keep)
	}
	h := unpack(t, c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"], &http.HttpProtocolOptions{})
	ping := h.GetExplicitHttpConfig().GetHttp2ProtocolOptions().GetConnectionKeepalive()
	if ping.GetInterval().GetSeconds() != 30 || ping.GetTimeout().GetSeconds() != 5 {
		t.Errorf("HTTP/2 keepalive %v", ping)
	}
}

func TestEnvoyProtocols(t *testing.T) {
	for _, c := range []struct {
		delta, perType bool
		want           core.ApiConfigSource_ApiType
	}{
		{false, false, core.ApiConfigSource_GRPC},
		{true, false, core.ApiConfigSource_DELTA_GRPC},
		{false, true, core.ApiConfigSource_GRPC},
		{true, true, core.ApiConfigSource_DELTA_GRPC},
	} {
		d := parse(t, Options{Node: "a", Server: "1.2.3.4:1", Delta: c.delta, PerType: c.perType}).DynamicResources
		api := []*core.ApiConfigSource{d.AdsConfig}
		for _, s := range []*core.ConfigSource{d.CdsConfig, d.LdsConfig} {
			if s.ResourceApiVersion != core.ApiVersion_V3 || (s.GetAds() == nil) != c.perType {
				t.Errorf("%+v: %v", c, s)
			}
			if c.perType {
				api = append(api, s.GetApiConfigSource())
			}
		}
		if c.perType {
			if api = api[1:]; d.AdsConfig != nil {
				t.Errorf("%+v: %v", c, d.AdsConfig)
			}
		}
		for _, a := range api {
			if a.ApiType != c.want || a.TransportApiVersion != core.ApiVersion_V3 || !a.SetNodeOnFirstMessageOnly ||
				len(a.GrpcServices) != 1 || a.GrpcServices[0].GetEnvoyGrpc().ClusterName != "xds" {
				t.Errorf("%+v: %v", c, a)
			}
		}
	}
}

func TestEnvoyPolls(t *testing.T) {
	m := parse(t, Options{Node: "a", Server: "1.2.3.4:1", REST: true})
	for _, s := range []*core.ConfigSource{m.DynamicResources.CdsConfig, m.DynamicResources.LdsConfig} {
		a := s.GetApiConfigSource()
		if a.GetApiType() != core.ApiConfigSource_REST || a.GetTransportApiVersion() != core.ApiVersion_V3 || !slices.Equal(a.GetClusterNames(), []string{"xds"}) ||
			a.GetRefreshDelay().GetSeconds() != 1 || a.GetRequestTimeout().GetSeconds() != 31 {
			t.Errorf("%v", s)
		}
	}
	if c := m.StaticResources.Clusters[0]; m.DynamicResources.AdsConfig != nil || len(c.TypedExtensionProtocolOptions) > 0 {
		t.Errorf("%v", m)
	}
}

func TestEnvoyAddresses(t *testing.T) {
	m := parse(t, Options{Node: "a", Server: "localhost:18000", Admin: "unix:///run/admin.sock"})
	c := m.StaticResources.Clusters[0]
	if c.GetType() != cluster.Cluster_STRICT_DNS || c.DnsLookupFamily != cluster.Cluster_V4_PREFERRED {
		t.Errorf("host name: %v", c)
	}
	if p := m.Admin.Address.GetPipe(); p.GetPath() != "/run/admin.sock" {
		t.Errorf("admin %v", m.Admin)
	}
	c = parse(t, Options{Node: "a", Server: "unix:xds.sock"}).StaticResources.Clusters[0]
	if p := c.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetPipe(); p.GetPath() != "xds.sock" || c.UpstreamConnectionOptions != nil {
		t.Errorf("unix socket: %v", c)
	}
}

func TestEnvoyTLS(t *testing.T) {
	for _, c := range []struct {
		server, name string
		sni, san     string
		kind         tls.SubjectAltNameMatcher_SanType
	}{
		{"xds.example:1", "", "xds.example", "xds.example", tls.SubjectAltNameMatcher_DNS},
		{"10.0.0.1:1", "xds.example", "xds.example", "xds.example", tls.SubjectAltNameMatcher_DNS},
		{"10.0.0.1:1", "", "", "10.0.0.1", tls.SubjectAltNameMatcher_IP_ADDRESS},
		{"[::1]:1", "", "", "::1", tls.SubjectAltNameMatcher_IP_ADDRESS},
		{"unix:///s", "xds.example", "xds.example", "xds.example", tls.SubjectAltNameMatcher_DNS},
	} {
		o := everything
		o.Server, o.TLS = c.server, &TLS{CA: "ca", Cert: "cert", Key: "key", ServerName: c.name}
		s := parse(t, o).StaticResources.Clusters[0].TransportSocket
		m := unpack(t, s.GetTypedConfig(), &tls.UpstreamTlsContext{})
		common := m.CommonTlsContext
		san := common.GetValidationContext().MatchTypedSubjectAltNames
		if m.Sni != c.sni || len(san) != 1 || san[0].SanType != c.kind || san[0].Matcher.GetExact() != c.san {
			t.Errorf("%+v: %v", c, m)
		}
		pair := common.TlsCertificates
		if len(pair) != 1 || pair[0].CertificateChain.GetFilename() != "cert" || pair[0].PrivateKey.GetFilename() != "key" ||
			common.GetValidationContext().TrustedCa.GetFilename() != "ca" || len(common.AlpnProtocols) != 1 || common.AlpnProtocols[0] != "h2" {
			t.Errorf("%+v: %v", c, common)
		}
	}
	o := everything
	o.TLS = &TLS{CA: "ca"}
	m := unpack(t, parse(t, o).StaticResources.Clusters[0].TransportSocket.GetTypedConfig(), &tls.UpstreamTlsContext{})
	if len(m.CommonTlsContext.TlsCertificates) != 0 {
		t.Errorf("%v", m)
	}
}

// The text is readable and stable.
func TestEnvoyText(t *testing.T) {
	b, err := Envoy(Options{Node: "a&b", Cluster: "edge", Server: "unix:///run/xds.sock"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "node": {
    "id": "a&b",
    "cluster": "edge"
  },
  "static_resources": {
    "clusters": [
      {
        "name": "xds",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
          "cluster_name": "xds",
          "endpoints": [
            {
              "lb_endpoints": [
                {
                  "endpoint": {
                    "address": {
                      "pipe": {
                        "path": "/run/xds.sock"
                      }
                    }
                  }
                }
              ]
            }
          ]
        },
        "typed_extension_protocol_options": {
          "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {
              "http2_protocol_options": {
                "connection_keepalive": {
                  "interval": "30s",
                  "timeout": "5s"
                }
              }
            }
          }
        }
      }
    ]
  },
  "dynamic_resources": {
    "ads_config": {
      "api_type": "GRPC",
      "transport_api_version": "V3",
      "grpc_services": [
        {
          "envoy_grpc": {
            "cluster_name": "xds"
          }
        }
      ],
      "set_node_on_first_message_only": true
    },
    "cds_config": {
      "resource_api_version": "V3",
      "ads": {}
    },
    "lds_config": {
      "resource_api_version": "V3",
      "ads": {}
    }
  },
  "admin": {
    "address": {
      "socket_address": {
        "address": "127.0.0.1",
        "port_value": 9901
      }
    }
  }
}
`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// a27 has the used fields of gRFC A27 and A65.
type a27 struct {
	Servers []struct {
		URI   string `json:"server_uri"`
		Creds []struct {
			Type   string `json:"type"`
			Config *struct {
				CA   string `json:"ca_certificate_file"`
				Cert string `json:"certificate_file"`
				Key  string `json:"private_key_file"`
			} `json:"config"`
		} `json:"channel_creds"`
		Features []string `json:"server_features"`
	} `json:"xds_servers"`
	Node struct {
		ID       string    `json:"id"`
		Cluster  string    `json:"cluster"`
		Locality *struct{} `json:"locality"`
	} `json:"node"`
	Listener string `json:"server_listener_resource_name_template"`
}

func TestGRPC(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{
			Options{Node: "a", Server: "127.0.0.1:18000"},
			`{"xds_servers": [{"server_uri": "127.0.0.1:18000", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], "node": {"id": "a", "locality": {}}}`,
		},
		{
			Options{Node: "a", Cluster: "c", Server: "unix:///run/xds.sock"},
			`{"xds_servers": [{"server_uri": "unix:///run/xds.sock", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], "node": {"id": "a", "cluster": "c", "locality": {}}}`,
		},
		{
			Options{Node: "a", Server: "[::1]:1", TLS: &TLS{}},
			`{"xds_servers": [{"server_uri": "[::1]:1", "channel_creds": [{"type": "tls", "config": {}}], "server_features": ["xds_v3"]}], "node": {"id": "a", "locality": {}}}`,
		},
		{
			Options{Node: "a", Server: "xds.example:1", TLS: &TLS{CA: "ca", Cert: "cert", Key: "key", ServerName: "XDS.example"}},
			`{"xds_servers": [{"server_uri": "xds.example:1", "channel_creds": [{"type": "tls", "config":
				{"ca_certificate_file": "ca", "certificate_file": "cert", "private_key_file": "key"}}], "server_features": ["xds_v3"]}], "node": {"id": "a", "locality": {}}}`,
		},
	} {
		b, err := GRPC(c.o)
		if err != nil {
			t.Errorf("%+v: %v", c.o, err)
			continue
		}
		var got, want a27
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Errorf("%v\n%s", err, b)
		}
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		want.Listener = "grpc/server?xds.resource.listening_address=%s"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: (-want +got)\n%s", c.o, diff)
		}
		// "node" must be a Node of the API, with the fields that gRPC reads.
		var raw struct{ Node json.RawMessage }
		if err := json.Unmarshal(b, &raw); err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(raw.Node, &core.Node{}); err != nil {
			t.Error(err)
		}
	}
}

func TestErrors(t *testing.T) {
	set := func(f func(*Options)) Options {
		o := Options{Node: "a", Server: "xds.example:18000"}
		f(&o)
		return o
	}
	for _, c := range []struct {
		o           Options
		envoy, grpc string // "": valid
	}{
		{set(func(*Options) {}), "", ""},
		{set(func(o *Options) { o.Node = "" }), "the node's id is missing", "the node's id is missing"},
		{set(func(o *Options) { o.Node = "\xff" }), "is not UTF-8", "is not UTF-8"},
		{set(func(o *Options) { o.Cluster = "\xff" }), "is not UTF-8", "is not UTF-8"},
		{set(func(o *Options) { o.Server = "" }), "--server: address", "--server: address"},
		{set(func(o *Options) { o.Server = "xds.example" }), "want host:port", "want host:port"},
		{set(func(o *Options) { o.Server = ":18000" }), "clients need the name", "clients need the name"},
		{set(func(o *Options) { o.Server = "0.0.0.0:18000" }), "clients need the name", "clients need the name"},
		{set(func(o *Options) { o.Server = "[::]:18000" }), "clients need the name", "clients need the name"},
		{set(func(o *Options) { o.Server = "xds.example:0" }), "has no port", "has no port"},
		{set(func(o *Options) { o.TLS = &TLS{CA: "ca", Cert: "cert"} }), "must be given together", "must be given together"},
		{set(func(o *Options) { o.TLS = &TLS{CA: "ca", Key: "key"} }), "must be given together", "must be given together"},
		{set(func(o *Options) { o.TLS = &TLS{} }), "without one Envoy trusts any server", ""},
		{set(func(o *Options) { o.TLS, o.Server = &TLS{CA: "ca"}, "unix:///s" }), "a unix socket needs", "a unix socket has none"},
		{set(func(o *Options) { o.TLS = &TLS{CA: "ca", ServerName: "other"} }), "", "cannot be told"},
		{set(func(o *Options) { o.Delta = true }), "", "not delta"},
		{set(func(o *Options) { o.PerType = true }), "", "only the aggregated service"},
		{set(func(o *Options) { o.REST = true }), "", "do not support REST"},
		{set(func(o *Options) { o.REST, o.Delta = true, true }), "REST has no delta", "not delta"},
		{set(func(o *Options) { o.Admin = "x" }), "--admin: address", "no admin interface"},
		{set(func(o *Options) { o.Admin = "localhost:9901" }), "Envoy listens on IP addresses", "no admin interface"},
		{set(func(o *Options) { o.Admin = ":9901" }), "Envoy listens on IP addresses", "no admin interface"},
	} {
		for what, f := range map[string]func(Options) ([]byte, error){"envoy": Envoy, "grpc": GRPC} {
			want := map[string]string{"envoy": c.envoy, "grpc": c.grpc}[what]
			b, err := f(c.o)
			switch {
			case want == "" && err != nil:
				t.Errorf("%s: %+v: %v", what, c.o, err)
			case want != "" && (err == nil || b != nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%s: %+v: %v, want an error with %q", what, c.o, err, want)
			}
		}
	}
}
