package secrets

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
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

// mapped returns JSON with each value replaced by f, innermost values first.
func mapped(v any, f func(any) any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			out[k] = mapped(v, f)
		}
		v = out
	case []any:
		var out []any
		for _, v := range x {
			out = append(out, mapped(v, f))
		}
		v = out
	}
	return f(v)
}

// forms are spellings of JSON that Envoy's reader accepts, or that users may write, and that protobuf's
// own reader rejects.
var forms = map[string]func(any) any{
	"a mapping for a list of one": func(v any) any {
		if l, ok := v.([]any); ok && len(l) == 1 {
			return l[0]
		}
		return v
	},
	"a list of one for a mapping": func(v any) any {
		if m, ok := v.(map[string]any); ok {
			return []any{m}
		}
		return v
	},
	"lists of texts": func(v any) any {
		if s, ok := v.(string); ok {
			return []any{s}
		}
		return v
	},
	"numbers for texts": func(v any) any {
		if _, ok := v.(string); ok {
			return 5
		}
		return v
	},
	"unknown fields": func(v any) any {
		if m, ok := v.(map[string]any); ok {
			m["no_such_field"], m["a_field"] = "x", []any{1}
		}
		return v
	},
	"both names of each field": func(v any) any {
		if m, ok := v.(map[string]any); ok {
			for k, v := range m {
				if camel := camelCase(k); m[camel] == nil {
					m[camel] = v
				}
			}
		}
		return v
	},
}

func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// spell returns a message as JSON with proto field names.
func spell(t *testing.T, m proto.Message) map[string]any {
	t.Helper()
	b, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: envoy.Envoy()}.Marshal(m)
	s := &structpb.Struct{}
	if err == nil {
		err = protojson.Unmarshal(b, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.AsMap()
}

func asStruct(t *testing.T, js any) *structpb.Struct {
	t.Helper()
	m, ok := js.(map[string]any)
	if !ok { // the form applies to the content
		m = js.([]any)[0].(map[string]any) //nolint:forcetypeassert // made above
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Marked fields are found in every spelling of a TypedStruct.
func TestMarkedFieldsInEverySpelling(t *testing.T) {
	const hcm = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	n := secrettest.Every(t, "SAFE-11", isMarked, func(t *testing.T, m proto.Message, fd protoreflect.FieldDescriptor) {
		own := "type.googleapis.com/" + string(fd.Parent().FullName())
		want := len(known.Find(m).Values) > 0
		for form, change := range forms {
			if !want && !slices.Contains([]string{"a mapping for a list of one", "a list of one for a mapping", "both names of each field"}, form) {
				continue // it would change a file name, which may be any text
			}
			alone := mapped(spell(t, m), change)
			inAny := spell(t, m)
			inAny["@type"] = own
			filters := []any{
				map[string]any{"typed_config": map[string]any{"@type": "type.googleapis.com/no.Such", "x": 1}},
				map[string]any{"typed_config": mapped(inAny, func(v any) any {
					if v == own {
						return v
					}
					return change(v)
				})},
			}
			if l, ok := filters[1].(map[string]any)["typed_config"].([]any); ok { //nolint:forcetypeassert // made above
				l[0].(map[string]any)["@type"] = own //nolint:forcetypeassert // made above
			} else {
				filters[1].(map[string]any)["typed_config"].(map[string]any)["@type"] = own //nolint:forcetypeassert // made above
			}
			for where, in := range map[string]proto.Message{
				"alone":          &xdsv3.TypedStruct{TypeUrl: own, Value: asStruct(t, alone)},
				"of an old type": &udpav1.TypedStruct{TypeUrl: own, Value: asStruct(t, alone)},
				"in an Any":      packed(t, &xdsv3.TypedStruct{TypeUrl: own, Value: asStruct(t, alone)}),
				"among filters":  &xdsv3.TypedStruct{TypeUrl: hcm, Value: asStruct(t, map[string]any{"codec_type": []any{1}, "http_filters": filters})},
				"in another TypedStruct": &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/xds.type.v3.TypedStruct", Value: asStruct(t, map[string]any{
					"typeUrl": own, "value": alone})},
			} {
				got := known.Find(in).Values
				named := slices.ContainsFunc(got, func(path string) bool { return strings.Contains(path, string(fd.Name())) })
				if want && !named || !want && len(got) > 0 {
					t.Errorf("SAFE-11 %s, %s: found %q, want %v, in\n%s", form, where, got, want, apitest.Text(in))
				}
			}
		}
	})
	if n < 38 {
		t.Errorf("%d fields are marked; Envoy's API has at minLength 38", n)
	}
}

// Each case is the content of a TypedStruct and the path of the secret in it.
func TestTypedStruct(t *testing.T) {
	const context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
	for _, tt := range []struct{ name, js, want string }{
		{"SAFE-11 a mapping for a list of one", `{"common_tls_context": {"tls_certificates": {"private_key": {"inline_string": "k"}}}}`, "[value.common_tls_context.tls_certificates.private_key]"},
		{"SAFE-11 a text for a bool", `{"common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": "k"}}]}, "allow_renegotiation": "true"}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 both names of a field", `{"common_tls_context": {}, "commonTlsContext": {"tls_certificates": [{"private_key": {"inline_string": "k"}}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 an unusual spelling of a name", `{"CommonTLSContext": {"tlscertificates": [{"PRIVATE_KEY": {"inlineString": "k"}}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 a text in place of the source", `{"common_tls_context": {"tls_certificates": [{"private_key": "k"}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 a text in place of the certificate", `{"common_tls_context": {"tls_certificates": ["k"]}}`, "[value.common_tls_context.tls_certificates[0]]"},
		{"SAFE-11 a list in place of the text", `{"common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": ["k"]}}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 an unknown kind of source", `{"common_tls_context": {"tls_certificates": [{"private_key": {"inline": "k"}}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 a mapping in place of a file's name", `{"common_tls_context": {"tls_certificates": [{"private_key": {"filename": {"x": "k"}}}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 both a file and a value", `{"common_tls_context": {"tls_certificates": [{"private_key": {"filename": "f", "inline_string": "k"}}]}}`, "[value.common_tls_context.tls_certificates[0].private_key]"},
		{"SAFE-11 an Any without a type", `{"common_tls_context": {"custom_handshaker": {"typed_config": {"private_key": "k"}}}}`, "[value.common_tls_context.custom_handshaker.typed_config]"},
		{"SAFE-11 an Any in an Any", `{"common_tls_context": {"custom_handshaker": {"typed_config": {"@type": "x/google.protobuf.Any", "value": {"@type": "` + context + `", "common_tls_context": 5}}}}}`,
			"[value.common_tls_context.custom_handshaker.typed_config.common_tls_context]"},
		{"SAFE-11 a map", `{"common_tls_context": {"custom_handshaker": {"typed_config": {"@type": "x/envoy.extensions.transport_sockets.tls.v3.GenericSecret", "secrets": {"a": {"filename": "f"}, "b": {"inline_bytes": "aw"}}}}}}`,
			"[value.common_tls_context.custom_handshaker.typed_config.secrets]"},
		{"a file", `{"common_tls_context": {"tls_certificates": [{"private_key": {"filename": "f", "watched_directory": {"path": "d"}}, "password": {"environment_variable": "v"}}]}}`, "[]"},
		{"nothing", `{"common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": null}, "password": null, "pkcs12": {}}, null], "custom_handshaker": {"typed_config": {}}}}`, "[]"},
		{"fields without secrets below", `{"require_client_certificate": "k", "no_such": {"private_key": {"inline_string": "k"}}}`, "[]"},
		{"an Any of an unknown type", `{"common_tls_context": {"custom_handshaker": {"typed_config": {"@type": "x/no.Such", "private_key": "k"}}}}`, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &structpb.Struct{}
			if err := protojson.Unmarshal([]byte(tt.js), s); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(known.Find(&xdsv3.TypedStruct{TypeUrl: context, Value: s}).Values); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Certificates are checked in every spelling.
func TestSpelledCertificates(t *testing.T) {
	one, two := newPair(t, ends), newPair(t, ends)
	for name, list := range map[string]bool{"SAFE-11 a list": true, "SAFE-11 a mapping for a list of one": false, "SAFE-11 a list for a mapping": false} {
		t.Run(name, func(t *testing.T) {
			var chain any = map[string]any{"inline_string": one.cert}
			if strings.HasSuffix(name, "a list for a mapping") {
				chain = []any{map[string]any{}, chain}
			}
			var certs any = map[string]any{"certificateChain": chain, "private_key": map[string]any{"inlineString": two.own}, "no_such": 1}
			if list {
				certs = []any{certs}
			}
			s := asStruct(t, map[string]any{"tls_certificates": certs})
			found := known.Find(&xdsv3.TypedStruct{TypeUrl: "x/" + string((&tlsv3.CommonTlsContext{}).ProtoReflect().Descriptor().FullName()), Value: s}).Certificates
			if len(found) != 1 || !found[0].Ends.Equal(ends) || fmt.Sprint(found[0].Err) != "private_key is not the key of the certificate" || !strings.HasPrefix(found[0].Path, "value.tls_certificates") {
				t.Errorf("%+v", found)
			}
		})
	}
	data := asStruct(t, map[string]any{"x": map[string]any{"inline_bytes": "-----_8"}}).Fields["x"]
	if got := jsonData(data.ProtoReflect()); len(got) != 5 {
		t.Errorf("%q", got)
	}
}

// Messages of the v2 API are found in any place; v3 messages are not reported.
func TestV2(t *testing.T) {
	const old = "type.googleapis.com/envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
	filter := func(url string) map[string]any {
		return map[string]any{"typed_config": map[string]any{"@type": url}}
	}
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"TYP-6 in an Any", &corev3.TypedExtensionConfig{TypedConfig: &anypb.Any{TypeUrl: old}}, "[{typed_config envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager}]"},
		{"TYP-6 in a file without the frozen mark", &corev3.TypedExtensionConfig{TypedConfig: &anypb.Any{TypeUrl: "x/envoy.api.v2.auth.Secret"}}, "[{typed_config envoy.api.v2.auth.Secret}]"},
		{"TYP-6 in a TypedStruct", &xdsv3.TypedStruct{TypeUrl: old}, "[{value envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager}]"},
		{"TYP-6 in the JSON of a TypedStruct", &xdsv3.TypedStruct{TypeUrl: "x/envoy.config.listener.v3.Filter", Value: asStruct(t, filter(old))},
			"[{value.typed_config envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager}]"},
		{"of v3", &xdsv3.TypedStruct{TypeUrl: "x/envoy.config.listener.v3.Filter", Value: asStruct(t, filter("x/envoy.config.cluster.v3.Cluster"))}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fmt.Sprint(known.Find(tt.m).V2); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
