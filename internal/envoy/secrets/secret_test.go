package secrets

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/internal/testkit/secrettest"
)

const canary = secrettest.Canary

var known = NewFinder(envoy.Envoy())

func has(text []byte) bool {
	return bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(canary)))[:20])
}

// shows reports whether a message contains the canary, in any spelling.
func shows(t *testing.T, m proto.Message) bool {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	js, _ := apitest.JSON(m) // fails if an Any has an unknown type
	return has(wire) || has(js) || has([]byte(apitest.Text(m)))
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// structOf returns a message as the JSON of a TypedStruct.
func structOf(t *testing.T, m proto.Message) *structpb.Struct {
	t.Helper()
	b, err := apitest.JSON(m)
	s := &structpb.Struct{}
	if err == nil {
		err = protojson.Unmarshal(b, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every marked field is found and hidden, in any message.
func TestMarkedFields(t *testing.T) {
	nothing := map[string]bool{} // spellings without a value, such as a DataSource's file or variable
	n := secrettest.Every(t, "SAFE-6 SAFE-11", isMarked, func(t *testing.T, m proto.Message, fd protoreflect.FieldDescriptor) {
		text := apitest.Text(m)
		value := strings.Contains(text, "inline_") || strings.Contains(text, canary) && !strings.HasSuffix(kindOf(fd), ".DataSource")
		if !value {
			nothing[string(fd.FullName())] = true
		}
		name := string(fd.Name())
		typed := &corev3.TypedExtensionConfig{Name: "x", TypedConfig: packed(t, m)}
		for _, in := range []struct {
			where string
			m     proto.Message
			path  string
		}{
			{"alone", m, name},
			{"in an Any", packed(t, m), name},
			{"in an Any of an Any", packed(t, packed(t, m)), name},
			{"in a listener", &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{}, {Filters: []*listenerv3.Filter{{
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{{
					ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, m)}}}})}}}}}},
				"filter_chains[1].filters[0].typed_config.http_filters[0].typed_config." + name},
			{"in a map", &clusterv3.Cluster{TypedExtensionProtocolOptions: map[string]*anypb.Any{"k": packed(t, m)}}, `typed_extension_protocol_options["k"].` + name},
			{"in a TypedStruct", &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/" + string(fd.Parent().FullName()), Value: structOf(t, m)}, "value." + name},
			{"in an old TypedStruct", &udpav1.TypedStruct{TypeUrl: "type.googleapis.com/" + string(fd.Parent().FullName()), Value: structOf(t, m)}, "value." + name},
			{"in an extension", typed, "typed_config." + name},
		} {
			found := known.Find(in.m)
			if value && !slices.Contains(found.Values, in.path) {
				t.Errorf("SAFE-11 %s: found %q, want %q in\n%s", in.where, found.Values, in.path, apitest.Text(in.m))
			}
			if !value && len(found.Values) != 0 {
				t.Errorf("SAFE-11 %s: found %q without a value, in\n%s", in.where, found.Values, text)
			}
			if !value {
				continue
			}
			if !shows(t, in.m) {
				t.Errorf("%s: the message does not contain the canary\n%s", in.where, apitest.Text(in.m))
			}
			for _, dump := range dumps(t, in.m) {
				if shown := hidden(t, in.m, dump); has([]byte(shown)) {
					t.Errorf("SAFE-6 %s: shown\n%s\nof\n%s", in.where, shown, dump)
				}
			}
		}
	})
	if n < 38 {
		t.Errorf("%d fields are marked; Envoy's API has at minLength 38", n)
	}
	if len(nothing) < 20 {
		t.Errorf("%d fields may name a location: the test's list is out of date", len(nothing))
	}
}

func kindOf(fd protoreflect.FieldDescriptor) string {
	if m := messageOf(fd); m != nil {
		return string(m.FullName())
	}
	return fd.Kind().String()
}

// dumps returns the forms in which clients may show a message.
func dumps(t *testing.T, m proto.Message) []string {
	t.Helper()
	text := apitest.Text(m)
	js, _ := apitest.JSON(m) // fails if an Any has an unknown type
	return []string{text, strings.Join(strings.Fields(text), " "), string(js), strconv.Quote(string(js))}
}

// hidden returns a text without the sensitive values of a message.
func hidden(t *testing.T, m proto.Message, text string) string {
	t.Helper()
	var texts []string
	if !known.Texts(m, func(text string) { texts = append(texts, text) }) {
		t.Error("a part could not be searched")
	}
	return Hide(text, texts)
}

// fileBut returns n DataSources: one with an inline value, the others with files.
func fileBut(n, one int) map[string]*corev3.DataSource {
	all := map[string]*corev3.DataSource{}
	for i := range n {
		all[fmt.Sprint(i)] = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "k"}}
		if i == one {
			all[fmt.Sprint(i)] = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "k"}}
		}
	}
	return all
}

func TestFind(t *testing.T) {
	key := func(d *corev3.DataSource) *tlsv3.Secret {
		return &tlsv3.Secret{Name: "s", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{PrivateKey: d}}}
	}
	unknown := &corev3.DataSource{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"SAFE-11 a key", key(&corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "k"}}), "[tls_certificate.private_key]"},
		{"SAFE-11 a key in a file", key(&corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "k"}}), "[]"},
		{"SAFE-11 a key in an environment variable", key(&corev3.DataSource{Specifier: &corev3.DataSource_EnvironmentVariable{EnvironmentVariable: "k"}}), "[]"},
		{"SAFE-11 a key in an unknown kind of source", key(unknown), "[tls_certificate.private_key]"},
		{"SAFE-11 public fields", &tlsv3.Secret{Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "ca"}}}}}, "[]"},
		{"SAFE-11 several keys", &tlsv3.Secret{Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
			Secret:  &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "a"}},
			Secrets: map[string]*corev3.DataSource{"b": {Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte("b")}}}}}},
			"[generic_secret.secret generic_secret.secrets]"},
		{"SAFE-11 the first of several in a file", &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{
			{Specifier: &corev3.DataSource_Filename{Filename: "k"}}, {Specifier: &corev3.DataSource_InlineString{InlineString: "k"}}}}, "[keys]"},
		{"SAFE-11 all of several in files", &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{{Specifier: &corev3.DataSource_Filename{Filename: "k"}}}}, "[]"},
		{"SAFE-11 all values of a map but one in files", &tlsv3.GenericSecret{Secrets: fileBut(20, 7)}, "[secrets]"},
		{"SAFE-11 all values of a map in files", &tlsv3.GenericSecret{Secrets: fileBut(20, -1)}, "[]"},
		{"SAFE-11 a TypedStruct with a key and an unknown field", &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
			Value: &structpb.Struct{Fields: map[string]*structpb.Value{
				"of_a_later_version": structpb.NewBoolValue(true),
				"private_key":        structpb.NewStructValue(structOf(t, &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: canary}}))}}}, "[value.private_key]"},
		{"an Any of an unknown type", &anypb.Any{TypeUrl: "type.googleapis.com/my.Own", Value: []byte(canary)}, "[]"},
		{"SAFE-11 an undecodable Any", &corev3.TypedExtensionConfig{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Value: []byte(canary)}}, "[typed_config]"},
		{"an undecodable Any of a type without secrets", &corev3.TypedExtensionConfig{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.core.v3.Locality", Value: []byte(canary)}}, "[]"},
		{"a TypedStruct of an unknown type", &xdsv3.TypedStruct{TypeUrl: "my.Own", Value: structOf(t, &corev3.Locality{Region: canary})}, "[]"},
		{"nothing", &clusterv3.Cluster{}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range []proto.Message{tt.m, apitest.Dynamic(t, tt.m)} {
				if got := fmt.Sprint(known.Find(m).Values); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				if all := known.Texts(m, func(string) {}); all == strings.Contains(tt.name, "SAFE-11 an undecodable Any") {
					t.Error("SAFE-6 was everything searched?", all)
				}
			}
		})
	}
}

// Deeply nested messages are searched quickly.
func TestDeepMessagesAreFast(t *testing.T) {
	nested := func(n int) *anypb.Any {
		a := packed(t, &tlsv3.TlsCertificate{Password: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: canary}}})
		for range n - 1 {
			a = packed(t, a)
		}
		return a
	}
	if f := known.Find(nested(MaxAnyDepth)); len(f.Values) != 1 || f.TooDeep != "" {
		t.Error("SAFE-9", f)
	}
	deep := &corev3.TypedExtensionConfig{TypedConfig: nested(MaxAnyDepth + 1)}
	if f := known.Find(deep); len(f.Values) != 0 || f.TooDeep != "typed_config" {
		t.Error("SAFE-9", f)
	}
	if known.Texts(deep, func(string) {}) {
		t.Error("SAFE-6 content that is nested too deep counts as searched")
	}
}

// An Any that does not decode as its type is reported with its path.
func TestUndecodableAny(t *testing.T) {
	bad := &corev3.TypedExtensionConfig{TypedConfig: &anypb.Any{TypeUrl: "x/envoy.config.core.v3.Locality", Value: []byte("\xff")}}
	if got := known.Find(bad).Unread; len(got) != 1 || got[0].Path != "typed_config" || got[0].Type != "Locality" || got[0].Err == nil {
		t.Errorf("SAFE-11 %+v", got)
	}
}

// The nesting limit is counted for each Any separately, and each Any has its own path.
func TestNestingLimitPerAny(t *testing.T) {
	socket := &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{}}
	key := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: canary}}
	for range 2 {
		socket.CommonTlsContext.TlsCertificates = append(socket.CommonTlsContext.TlsCertificates, &tlsv3.TlsCertificate{PrivateKey: key})
	}
	if got := fmt.Sprint(known.Find(socket).Values); got != "[common_tls_context.tls_certificates[0].private_key common_tls_context.tls_certificates[1].private_key]" {
		t.Error("SAFE-11", got)
	}
	many := &clusterv3.Cluster{TypedExtensionProtocolOptions: map[string]*anypb.Any{}}
	for i := range 2 * MaxAnyDepth {
		many.TypedExtensionProtocolOptions[fmt.Sprint(i)] = packed(t, socket.CommonTlsContext.TlsCertificates[0])
	}
	if f := known.Find(many); len(f.Values) != 2*MaxAnyDepth || f.TooDeep != "" {
		t.Error("SAFE-11", f)
	}
	n := 0
	if all := known.Texts(many, func(text string) { n += strings.Count(text, canary) }); !all || n != 2*MaxAnyDepth {
		t.Error("SAFE-6", all, n)
	}
}
