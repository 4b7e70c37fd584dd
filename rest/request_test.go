package rest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestDecode(t *testing.T) {
	full := xds.Request{
		Type: xds.Cluster, Nonce: "3", Version: "v", Names: []string{"a", "b\n"}, Error: &xds.Status{Code: -3, Message: "no"},
		Node: &xds.Node{ID: "n", Cluster: "c", UserAgentName: "envoy", UserAgentVersion: "1.40.2", Region: "r", Zone: "z", SubZone: "s", ClientFeatures: []string{"f"}},
	}
	for name, c := range map[string]struct {
		json string
		want xds.Request
	}{
		"snake_case": {
			`{"node":{"id":"n","cluster":"c","locality":{"region":"r","zone":"z","sub_zone":"s"},"user_agent_name":"envoy",
			  "user_agent_build_version":{"version":{"major_number":1,"minor_number":40,"patch":2},"metadata":{"a":[1]}},"client_features":["f"],"extensions":[{"name":"x"}]},
			  "version_info":"v","resource_names":["a","b\n"],"type_url":"type.googleapis.com/envoy.config.cluster.v3.Cluster","response_nonce":"3","error_detail":{"code":-3,"message":"no","details":[]}}`, full,
		},
		"camelCase": {
			`{"node":{"id":"n","cluster":"c","locality":{"region":"r","zone":"z","subZone":"s"},"userAgentName":"envoy",
			  "userAgentBuildVersion":{"version":{"majorNumber":"1","minorNumber":4e1,"patch":2.0}},"clientFeatures":["f"]},
			  "versionInfo":"v","resourceNames":["a","b\u000a"],"typeUrl":"type.googleapis.com/envoy.config.cluster.v3.Cluster","responseNonce":"3","errorDetail":{"code":"-3","message":"no"}}`, full,
		},
		"empty":           {`{}`, xds.Request{}},
		"spaces":          {" \n\t\r{ \"version_info\" : \"v\" , \"resource_names\" : [ ] } \n", xds.Request{Version: "v"}},
		"the last counts": {`{"type_url":"type.googleapis.com/envoy.config.cluster.v3.Cluster","type_url":"","version_info":"v","version_info":"w"}`, xds.Request{Version: "w"}},
		"nulls":           {`{"node":null,"version_info":null,"resource_names":null,"type_url":null,"error_detail":null}`, xds.Request{}},
		"empty messages":  {`{"node":{},"error_detail":{}}`, xds.Request{Node: &xds.Node{}, Error: &xds.Status{}}},
		"unknown fields":  {`{"new":{"a":[{"b":null},true,false,-0.5e+3,"\ud83d\ude00"]},"node":{"new":1},"version_info":"v","versioninfo":1,"VersionInfo":2}`, xds.Request{Version: "v", Node: &xds.Node{}}},
		"an escaped name": {`{"\u0076ersion_info":"v"}`, xds.Request{Version: "v"}},
		"NAME-2":          {`{"resource_names":["xdstp://a/t/x?b=2&a=1","x?b&a"]}`, xds.Request{Names: []string{"xdstp://a/t/x?a=1&b=2", "x?b&a"}}},
	} {
		t.Run("REST-1 REST-5 "+name, func(t *testing.T) {
			got, err := decode([]byte(c.json))
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v %+v %+v, %v", got, got.Node, got.Error, err)
			}
		})
	}
	t.Run("SAFE-14 metadata with the most values", func(t *testing.T) {
		text := strings.Repeat(`\",{[`, 10_000) // not values
		for more, want := range []string{"", "node.metadata: more than 10000 values"} {
			list := strings.Repeat(",0", nodemeta.MaxEntries-4+more)
			got, err := decode([]byte(`{"node":{"metadata":{"a":"` + text + `","b":[0` + list + `]}}}`))
			if want == "" && (err != nil || len(got.Node.Metadata) == 0) || want != "" && (err == nil || err.Error() != want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
	t.Run("REST-1 metadata", func(t *testing.T) {
		got, err := decode([]byte(`{"node":{"metadata":{"a":{"b":[1,true,null,"x"]}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		var s structpb.Struct
		if err := proto.Unmarshal(got.Node.Metadata, &s); err != nil || s.Fields["a"].GetStructValue().Fields["b"].GetListValue().Values[3].GetStringValue() != "x" {
			t.Error(&s, err)
		}
	})
}

func TestDecodeErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "malformed JSON: it ends where a value is missing",
		"null":                                "the request: want an object, not null",
		"[]":                                  "the request: want an object, not []",
		`"a"`:                                 `the request: want an object, not "a"`,
		`{`:                                   "malformed JSON: it ends where a name is missing",
		`{"a"`:                                `malformed JSON: it ends where ":" is missing`,
		`{"a":1`:                              "malformed JSON: it ends where ',' or '}' is missing",
		`{"a":1,}`:                            "malformed JSON at byte 7: want a name, not '}'",
		`{a:1}`:                               "malformed JSON at byte 1: want a name, not 'a'",
		`{"a":01}`:                            "malformed JSON at byte 6: want ',' or '}', not '1'",
		`{"a":1.}`:                            "malformed JSON at byte 7: want a digit, not '}'",
		`{"a":-}`:                             "malformed JSON at byte 6: want a digit, not '}'",
		`{"a":nul}`:                           "malformed JSON at byte 8: want null, not '}'",
		`{"a":"\x"}`:                          "malformed JSON at byte 7: want an escape of a string, not 'x'",
		`{"a":"\u12g4"}`:                      "malformed JSON at byte 10: want an escape of a string, not 'g'",
		"{\"a\":\"\n\"}":                      "malformed JSON at byte 6: want a character of a string, not '\\n'",
		`{"a":"`:                              "malformed JSON: it ends where the end of a string is missing",
		`{} {}`:                               "malformed JSON at byte 3: want the end, not '{'",
		"{\"a\":\"\xff\"}":                    "the request is not UTF-8",
		`{"version_info":1}`:                  "version_info: want a string, not 1",
		`{"versionInfo":[1]}`:                 "version_info: want a string, not [1]",
		`{"resource_names":{}}`:               "resource_names: want a list of strings, not {}",
		`{"resource_names":["a",null]}`:       "resource_names[1]: want a string, not null",
		`{"node":"n"}`:                        `node: want an object, not "n"`,
		`{"node":{"locality":{"zone":true}}}`: "node.locality.zone: want a string, not true",
		`{"node":{"metadata":[]}}`:            "node.metadata: ",
		`{"node":{"user_agent_build_version":{"version":{"patch":-1}}}}`:       "node.user_agent_build_version.version.patch: want a whole number from 0 to 4294967295, not -1",
		`{"error_detail":{"code":1.5}}`:                                        "error_detail.code: want a whole number from -2147483648 to 2147483647, not 1.5",
		`{"error_detail":{"code":"0x10"}}`:                                     `error_detail.code: want a whole number from -2147483648 to 2147483647, not "0x10"`,
		`{"error_detail":"no"}`:                                                `error_detail: want an object, not "no"`,
		`{"resource_names_subscribe":["a"]}`:                                   "resource_names_subscribe: REST does not support delta xDS",
		`{"initialResourceVersions":{}}`:                                       "initial_resource_versions: REST does not support delta xDS",
		`{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`:  "a: nested deeper than 1000",
		`{"node":{"metadata":` + strings.Repeat(`{"a":`, 100000) + `1` + `}}}`: "node.metadata: nested deeper than 1000",
	} {
		t.Run("REST-5 "+in[:min(len(in), 60)], func(t *testing.T) {
			got, err := decode([]byte(in))
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, %+v, want %s", err, got, want)
			}
		})
	}
}

// A request of Envoy decodes to the same fields as with the generated messages, and JSON is valid if
// encoding/json accepts it.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"node":{"id":"n","user_agent_build_version":{"version":{"minor_number":40}},"extensions":[{"name":"x","type_urls":["a.b.C"]}]},"resource_names":["b"],"version_info":"v","type_url":"a/b.C"}`,
		`{"node":{"metadata":{"a":[1,{"b":null}]},"userAgentVersion":"x","locality":{}},"errorDetail":{"code":"3"}}`,
		`{"node":{"user_agent_build_version":{"version":{"major_number":1e0}}},"response_nonce":"\u00e4\ud83d\ude00\\"}`,
		`{"resource_names":["a", "" ,"*"],"x":[-0.5E-3,true,false,null,{}]}`, `{"a":1e+}`, `[`, `{"a":"\ud800"}`, `{"\u0076ersionInfo":"v"}`, "{\"a\":1e\r5}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(agree)
}

func TestDecodeEnvoy(t *testing.T) {
	t.Run("REST-1 as much as Envoy sends", func(t *testing.T) {
		b := envoyPoll("n", "v", "a", "b")
		if req, err := decode(b); err != nil || len(b) < 70_000 || len(req.Names) != 2 || req.Node.UserAgentVersion != "1.40.0" {
			t.Error(req, err)
		}
		agree(t, b)
	})
}

func agree(t *testing.T, b []byte) {
	got, err := decode(b)
	if p := parse(b); p.Err() == nil {
		p.Raw()
		err := p.End()
		if deep := err != nil && strings.Contains(err.Error(), "nested deeper"); (err == nil) != json.Valid(b) && !deep {
			t.Fatalf("valid %v, but %v", err != nil, err)
		}
	}
	if err == nil && (!json.Valid(b) || !utf8.Valid(b)) {
		t.Fatalf("accepts %q", b)
	}
	var m discovery.DiscoveryRequest
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &m) != nil {
		return // it refuses more: duplicate fields, and errors in unused fields
	}
	if !json.Valid(b) {
		return // and less: a number "1e+"
	}
	if err != nil {
		if s := err.Error(); strings.Contains(s, "nested deeper") || strings.Contains(s, "REST does not support delta") {
			return
		}
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	want, err := new(wire.Decoder).Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*xds.Request{&got, &want} {
		if len(r.Names) == 0 {
			r.Names = nil
		}
		if r.Node != nil {
			var s structpb.Struct
			if err := proto.Unmarshal(r.Node.Metadata, &s); err != nil {
				t.Fatal(err)
			}
			if r.Node.Metadata, err = (proto.MarshalOptions{Deterministic: true}).Marshal(&s); err != nil || len(r.Node.Metadata) == 0 {
				r.Node.Metadata = nil
			}
			if len(r.Node.ClientFeatures) == 0 {
				r.Node.ClientFeatures = nil
			}
		}
		if r.Type != nil {
			r.Type = &xds.Type{URL: r.Type.URL}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v %+v %+v\nwant %+v %+v %+v", got, got.Node, got.Error, want, want.Node, want.Error)
	}
}

func BenchmarkDecode(b *testing.B) {
	body := envoyPoll("envoy-1", "0123456789abcdef", "backend")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(body); err != nil {
			b.Fatal(err)
		}
	}
}
