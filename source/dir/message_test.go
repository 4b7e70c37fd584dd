package dir

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

const textResponse = `# Envoy's own
version_info: "v7"
resources {
  [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "a" connect_timeout { seconds: 1 } }
}
resources {
  [type.googleapis.com/envoy.service.discovery.v3.Resource] {
    name: "r/v"
    aliases: "r/w"
    ttl { seconds: 30 }
    resource { [type.googleapis.com/envoy.config.route.v3.VirtualHost] { name: "v" domains: "*" } }
  }
}
`

// The value of an Any in a resource must be valid. Otherwise no client can use it, and secrets in it
// cannot be found.
func TestDecodeNested(t *testing.T) {
	key := &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{
		{PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: canary}}}}}}
	packed, err := anypb.New(key)
	if err != nil {
		t.Fatal(err)
	}
	packed.Value = append(packed.Value, 0xff, 0xff)
	l, err := anypb.New(&listenerv3.Listener{Name: "edge", FilterChains: []*listenerv3.FilterChain{{}, {TransportSocket: &corev3.TransportSocket{
		Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed}}}}})
	if err != nil {
		t.Fatal(err)
	}
	m := &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{l}}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	const want = "resources[0].filter_chains[1].transport_socket.typed_config: the value is not a valid DownstreamTlsContext: cannot parse invalid wire-format data\n"
	if got := decoded(envoy.decode("x.pb", b)); got != "x.pb: "+want {
		t.Error("SAFE-11", got)
	}
	text := prototext.MarshalOptions{Resolver: new(protoregistry.Types)}.Format(m)
	if got := decoded(envoy.decode("x.txtpb", []byte(text))); got != "x.txtpb: "+want {
		t.Error("SAFE-11", got)
	}
}

// encoded returns a response in the text format as binary.
func encoded(tb testing.TB, text string) []byte {
	var m discoveryv3.DiscoveryResponse
	if err := (prototext.UnmarshalOptions{Resolver: envoy.types}).Unmarshal([]byte(text), &m); err != nil {
		tb.Fatal(err)
	}
	b, err := proto.Marshal(&m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Envoy and most gRPC clients decode at most 100 messages inside each other.
func TestFILE7DecodeDeepMessages(t *testing.T) {
	structs := func(n int) *structpb.Struct {
		s := &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1)}}
		for range n - 1 {
			s = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStructValue(s)}}
		}
		return s
	}
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const deep = "the value is not a valid %s: exceeded maximum recursion depth\n"
	for _, tt := range []struct {
		resource proto.Message
		want     string
	}{
		{&clusterv3.Cluster{Name: "c", Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"m": structs(32)}}}, "CDS c at %s (resources[0])"},
		{&clusterv3.Cluster{Name: "c", Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"m": structs(33)}}}, "%s: resources[0]: " + fmt.Sprintf(deep, "Cluster")},
		{&corev3.TypedExtensionConfig{Name: "e", TypedConfig: pack(structs(33))}, "ECDS e at %s (resources[0])"},
		{&corev3.TypedExtensionConfig{Name: "e", TypedConfig: pack(structs(34))}, "%s: resources[0].typed_config: " + fmt.Sprintf(deep, "Struct")},
	} {
		m := &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{pack(tt.resource)}}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		text := prototext.MarshalOptions{Resolver: new(protoregistry.Types)}.Format(m)
		for file, data := range map[string][]byte{"x.pb": b, "x.txtpb": []byte(text)} {
			if got := decoded(envoy.decode(file, data)); !strings.HasPrefix(got, fmt.Sprintf(tt.want, file)) {
				t.Errorf("got %s, want "+tt.want, got, file)
			}
		}
	}
}

func TestDecodeMessages(t *testing.T) {
	const head = "# proto-message: "
	for _, tt := range []struct{ name, file, in, want string }{
		{"a response in text", "x.txtpb", textResponse,
			"CDS a at x.txtpb (resources[0]) in v7\nVHDS r/v at x.txtpb (resources[1]) aliases [r/w] ttl 30s in v7\n"},
		{"a response in binary", "x.pb", string(encoded(t, textResponse)),
			"CDS a at x.pb (resources[0]) in v7\nVHDS r/v at x.pb (resources[1]) aliases [r/w] ttl 30s in v7\n"},
		{"one resource", "x.pb_text", "\n# about it\n" + head + "envoy.config.cluster.v3.Cluster\n\nname: 'a'\n", "CDS a at x.pb_text\n"},
		{"one wrapper", "x.textproto", head + "envoy.service.discovery.v3.Resource\nname: 'b' resource { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: 'b' } }",
			"CDS b at x.textproto\n"},
		{"a wrapper with another name", "x.textproto", head + "envoy.service.discovery.v3.Resource\nname: 'b' resource { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: 'a' } }",
			"x.textproto: CDS resource \"b\": the name in the message is \"a\": use that name, and aliases for other names\n"},
		{"a response named by the header", "x.textproto", head + "envoy.service.discovery.v3.DiscoveryResponse\n" + textResponse[:len(textResponse)-1],
			"CDS a at x.textproto (resources[0]) in v7\nVHDS r/v at x.textproto (resources[1]) aliases [r/w] ttl 30s in v7\n"},
		{"a resource without a header", "x.txtpb", "name: 'a'\n",
			"x.txtpb:1:1: unknown field (read as a DiscoveryResponse: for another message, begin with a line \"# proto-message: envoy.config.cluster.v3.Cluster\")\n"},
		{"an unknown field", "x.txtpb", head + "envoy.config.cluster.v3.Cluster\nname: 'a'\n  nam: 'b'\n", "x.txtpb:3:3: unknown field\n"},
		{"half a file", "x.txtpb", head + "envoy.config.cluster.v3.Cluster\nmetadata {", "x.txtpb:2: the file ends in the middle of a value\n"},
		{"a header of nothing", "x.txtpb", "#\n" + head + "envoy.Cluster\n", "x.txtpb:2:1: no message type is known as \"envoy.Cluster\" (did you mean \"envoy.config.cluster.v3.Cluster\"?)\n"},
		{"an unknown type", "x.txtpb", "resources { type_url: 'type.googleapis.com/x.Y' }", "x.txtpb: resources[0]: no message type is known as \"x.Y\"\n"},
		{"a foreign URL", "x.txtpb", "resources { type_url: 'x.Y' }", "x.txtpb: resources[0]: type \"x.Y\" must be a full type URL, which begins with type.googleapis.com/\n"},
		{"a bad encoding inside", "x.txtpb", "resources { type_url: 'type.googleapis.com/envoy.config.cluster.v3.Cluster' value: '\\xff' }",
			"x.txtpb: resources[0]: the value is not a valid Cluster: cannot parse invalid wire-format data\n"},
		{"a wrapper around nothing", "x.txtpb", "resources { [type.googleapis.com/envoy.service.discovery.v3.Resource] { name: 'a' } }",
			"x.txtpb: resources[0]: the Resource has no field \"resource\"\n"},
		{"a name that is missing", "x.txtpb", "resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { } }", "x.txtpb: resources[0]: CDS resource without a name\n"},
		{"no resources", "x.txtpb", "version_info: '7'", "x.txtpb: warning: the DiscoveryResponse has no resources\n"},
		{"invalid binary data", "x.pb", "name: a\n", "x.pb: not an encoded DiscoveryResponse: cannot parse invalid wire-format data\n"},
		{"another message in binary", "x.pb", "\x0a\x01a\x10\x03", "x.pb: not an encoded DiscoveryResponse: it has unknown fields\n"},
		{"half a response in binary", "x.pb", string(encoded(t, textResponse)[:40]), "x.pb: not an encoded DiscoveryResponse: cannot parse invalid wire-format data\n"},
		{"binary data in a text file", "x.txtpb", "name: \xff", "x.txtpb:1:7: this is not text: byte 0xff\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decoded(envoy.decode(tt.file, []byte(tt.in))); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}
