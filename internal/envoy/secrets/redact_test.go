package secrets

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	basicauthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/basic_auth/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/internal/testkit/secrettest"
)

// Every marked field is redacted in any message, and the other fields stay.
func TestRedactEveryField(t *testing.T) {
	secrettest.Every(t, "SAFE-6", isMarked, func(t *testing.T, m proto.Message, fd protoreflect.FieldDescriptor) {
		for _, in := range []struct {
			where string
			m     proto.Message
		}{
			{"alone", m},
			{"in an Any of an Any", packed(t, packed(t, m))},
			{"in a list", &listenerv3.Listener{Name: "kept", FilterChains: []*listenerv3.FilterChain{{}, {Filters: []*listenerv3.Filter{{
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}}}}}},
			{"in a map", &clusterv3.Cluster{Name: "kept", TypedExtensionProtocolOptions: map[string]*anypb.Any{"k": packed(t, m)}}},
			{"in a TypedStruct", &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/" + string(fd.Parent().FullName()), Value: structOf(t, m)}},
			{"in the TypedStruct of an Any of a TypedStruct", &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/google.protobuf.Any", Value: structOf(t, packed(t, m))}},
		} {
			value := len(known.Find(in.m).Values) > 0
			got := proto.Clone(in.m)
			if changed := known.Redact(got); changed != value {
				t.Errorf("%s: changed: %v, want %v\n%s", in.where, changed, value, apitest.Text(in.m))
			}
			if value && shows(t, got) {
				t.Errorf("%s: shown\n%s\nof\n%s", in.where, apitest.Text(got), apitest.Text(in.m))
			}
			if !value && !proto.Equal(got, in.m) {
				t.Errorf("%s: other fields changed:\n%s", in.where, apitest.Text(got))
			}
			if left := known.Find(got); len(left.Unread) > 0 {
				t.Errorf("%s: broken: %v", in.where, left.Unread)
			}
			js, err := apitest.JSON(got)
			if err != nil {
				t.Errorf("%s: %v", in.where, err)
			}
			if value != strings.Contains(string(js), Redacted) && value != strings.Contains(string(js), "W3JlZGFjdGVkXQ") && !strings.Contains(string(js), "TypedStruct") {
				t.Errorf("%s: no redaction mark in %s", in.where, js)
			}
		}
	})
}

func TestSAFE6Redact(t *testing.T) {
	inline := func(s string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
	}
	file := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/etc/key.pem"}}
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/acme.Filter", Value: []byte(canary)}
	deep := packed(t, &tlsv3.Secret{Name: "x", Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: inline(canary)}}})
	for range MaxAnyDepth {
		deep = packed(t, deep)
	}
	odd := &clusterv3.Cluster{Name: "a"}
	odd.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 5000, protowire.BytesType), canary))
	inside := &clusterv3.Cluster{Name: "a", LoadAssignment: nil, TransportSocket: &corev3.TransportSocket{Name: "t"}}
	inside.TransportSocket.ProtoReflect().SetUnknown(odd.ProtoReflect().GetUnknown())
	spelled := func(url, js string) *xdsv3.TypedStruct {
		s := &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(js), s); err != nil {
			t.Fatal(err)
		}
		return &xdsv3.TypedStruct{TypeUrl: url, Value: s}
	}
	const tls, anyURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.TlsCertificate", "type.googleapis.com/google.protobuf.Any"
	for name, tt := range map[string]struct {
		m    proto.Message
		want string // JSON without spaces
	}{
		"a key and other fields": {
			&tlsv3.TlsCertificate{CertificateChain: inline("chain"), PrivateKey: inline(canary), OcspStaple: inline("x")},
			`{"certificateChain":{"inlineString":"chain"},"privateKey":{"inlineString":"[redacted]"},"ocspStaple":{"inlineString":"x"}}`,
		},
		"bytes": {
			&tlsv3.TlsCertificate{PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(canary)}}},
			`{"privateKey":{"inlineBytes":"W3JlZGFjdGVkXQ=="}}`,
		},
		"the location of a key": {&tlsv3.TlsCertificate{PrivateKey: file, Password: inline(canary)},
			`{"privateKey":{"filename":"/etc/key.pem"},"password":{"inlineString":"[redacted]"}}`},
		"users":           {&basicauthv3.BasicAuth{Users: inline(canary)}, `{"users":{"inlineString":"[redacted]"}}`},
		"an unknown type": {&corev3.TypedExtensionConfig{Name: "a", TypedConfig: unknown}, `{"name":"a","typedConfig":{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","typeUrl":"type.googleapis.com/acme.Filter"}}`},
		"undecodable content": {&corev3.TypedExtensionConfig{Name: "a", TypedConfig: &anypb.Any{TypeUrl: tls, Value: []byte("\x0a\xff" + canary)}},
			`{"name":"a","typedConfig":{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","typeUrl":"` + tls + `"}}`},
		"without a type":         {&corev3.TypedExtensionConfig{Name: "a", TypedConfig: &anypb.Any{Value: []byte(canary)}}, `{"name":"a","typedConfig":{}}`},
		"an unknown field":       {odd, `{"name":"a"}`},
		"a nested unknown field": {inside, `{"name":"a","transportSocket":{"name":"t"}}`},
		"JSON of an unknown type": {spelled("type.googleapis.com/acme.Filter", `{"a":"`+canary+`"}`),
			`{"typeUrl":"type.googleapis.com/acme.Filter"}`},
		"JSON with an unknown field": {spelled(tls, `{"nobody":{"x":["`+canary+`"]},"ocsp_staple":{"filename":"x"}}`),
			`{"typeUrl":"` + tls + `","value":{"nobody":{"x":["[redacted]"]},"ocsp_staple":{"filename":"x"}}}`},
		"JSON with another spelling of a name": {spelled(tls, `{"privatekey_":"`+canary+`","ocsp_staple":{"inline_string":"x"}}`),
			`{"typeUrl":"` + tls + `","value":{"ocsp_staple":{"inline_string":"x"},"privatekey_":"[redacted]"}}`},
		"JSON with a mapping for a list of one": {spelled(tls, `{"private_key":[{"inline_string":"`+canary+`"}],"password":{"filename":"/p"}}`),
			`{"typeUrl":"` + tls + `","value":{"password":{"filename":"/p"},"private_key":[{"inline_string":"[redacted]"}]}}`},
		"JSON with two types": {spelled(anyURL, `{"@type":"`+tls+`","@Type":"`+tls+`","a":"`+canary+`"}`),
			`{"typeUrl":"` + anyURL + `","value":{"@Type":"[redacted]","@type":"` + tls + `","a":"[redacted]"}}`},
		"JSON with a number as type": {spelled(anyURL, `{"@type":5,"a":"`+canary+`"}`),
			`{"typeUrl":"` + anyURL + `","value":{"@type":"[redacted]","a":"[redacted]"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := proto.Clone(tt.m)
			if !known.Redact(got) {
				t.Error("reports no change")
			}
			js, err := protojson.MarshalOptions{Resolver: envoy.Envoy()}.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(strings.Fields(string(js)), ""); text != tt.want {
				t.Errorf("%s, want %s", text, tt.want)
			}
			if shows(t, got) {
				t.Errorf("shown: %s", apitest.Text(got))
			}
		})
	}
	got := proto.Clone(deep)
	if !known.Redact(got) || shows(t, got) {
		t.Error("content that is nested too deep is shown")
	}
}

func TestSAFE6Shown(t *testing.T) {
	body := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	if m, asItIs := known.Shown(cluster, body(&clusterv3.Cluster{Name: "a"})); !asItIs || !strings.Contains(apitest.Text(m), `"a"`) {
		t.Error(m, asItIs)
	}
	for url, b := range map[string][]byte{cluster: []byte("\x0a\xff"), "type.googleapis.com/acme.Own": []byte(canary)} {
		m, asItIs := known.Shown(url, b)
		if asItIs || m == nil || !strings.Contains(apitest.Text(m), url) || shows(t, m) {
			t.Error(m, asItIs)
		}
	}
}
