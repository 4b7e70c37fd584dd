package export

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// odds are strings that YAML readers may understand as another type, or as several lines.
var odds = []string{
	"", " ", "y", "Y", "yes", "No", "on", "off", "true", "FALSE", "null", "~", "nan", ".inf", "-.Inf", "inf", "0", "007", "0x10", "0o7", "1e3", "1_000", "12:30:45",
	"2001-01-01", "1.", ".5", "-", "--- ", "...", "- a", "a: b", "a #b", "#", "&a", "*a", "!a", "!!str", "|", ">", "%TAG", "@a", "`a`", "{}", "[]", "{a", "'", `"`, `\`, `\n`,
	"a\nb", "a\nb\n", "a\nb\n\n", "\na", "a\n\nb\n", " a\nb", "a\n b\n", "a \nb", "a\nb ", "a\n\tb", "a\r\nb", "\t", "\r", "\x00", "\x07", "\x1b", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "\ufffe",
	"ü", "日本", "👍🏽", "e\u0301", "---\na: b\n...", "-----BEGIN X-----\nabc=\n-----END X-----\n", "a\n# b\n", "<<", "=", "?", "? a", ":", "a:", strings.Repeat("long ", 100),
}

// oddResources has every kind of value.
func oddResources(t *testing.T) resourceList {
	fields := map[string]*structpb.Value{"nothing": structpb.NewNullValue(), "list": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewListValue(&structpb.ListValue{}), structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(1e300), structpb.NewBoolValue(false)}}),
		structpb.NewStructValue(&structpb.Struct{}), structpb.NewNumberValue(-0.5), structpb.NewNumberValue(1e-7), structpb.NewNumberValue(123456789012)}})}
	for _, s := range odds {
		fields[s] = structpb.NewStringValue(s)
	}
	meta := &structpb.Struct{Fields: fields}
	c := &clusterv3.Cluster{
		Name:                          "odd/名",
		ConnectTimeout:                &durationpb.Duration{Seconds: 1, Nanos: 5},
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(0),
		Metadata:                      &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"": meta, "y": {}}, TypedFilterMetadata: map[string]*anypb.Any{"0": packed(t, meta), "a": packed(t, wrapperspb.String("y"))}},
		LbSubsetConfig:                &clusterv3.Cluster_LbSubsetConfig{DefaultSubset: meta, SubsetSelectors: []*clusterv3.Cluster_LbSubsetConfig_LbSubsetSelector{{Keys: odds}}},
		HealthChecks: []*corev3.HealthCheck{{HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{
			Send: &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Binary{Binary: []byte{0, 1, 255}}}}}}},
		MaxRequestsPerConnection: wrapperspb.UInt32(math.MaxUint32),
	}
	var headers []*corev3.HeaderValueOption
	for _, s := range odds {
		headers = append(headers, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: s, Value: s, RawValue: []byte(s)}})
	}
	return resourceList{
		c, eds("a"), assignment("a", 1), rds(t, "l", "r"), secret("s", "-----BEGIN\na\n"),
		&routev3.RouteConfiguration{Name: "r", ResponseHeadersToAdd: headers, VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}, RequestBodyBufferLimit: wrapperspb.UInt64(math.MaxUint64)}}},
		&runtimev3.Runtime{Name: "rt", Layer: meta},
		&corev3.HeaderValue{Key: "no row", Value: "of the table of types"},
	}
}

// An export with KeepSources contains the original resources, in every format.
func TestFormats(t *testing.T) {
	for _, f := range formats {
		t.Run("FILE-4 "+f.name, func(t *testing.T) {
			view := oddResources(t)
			// The exporter finds names by the name field, so a type without one is wrapped.
			view[len(view)-1] = &corev3.TypedExtensionConfig{Name: "e", TypedConfig: packed(t, view[len(view)-1].(proto.Message))}
			s := open(t, t.TempDir(), Options{Format: f, KeepSources: true})
			s.export(view)
			st := store.New()
			if _, err := dir.New(filepath.Join(s.root, "current"), st, dir.Options{}).Load(); err != nil {
				t.Fatal(err)
			}
			got := st.Snapshot().View(store.DefaultGroup)
			for url, want := range view.view(t).All() {
				typ := xds.TypeOf(url)
				if got.Table(typ).Version() == want.Version() {
					continue
				}
				for r := range want.All() {
					now := got.Table(typ).Lookup(r.Name)
					if now == nil {
						t.Fatalf("%s %q is missing", typ, r.Name)
					}
					t.Errorf("%s %q differs (-want +got):\n%s", typ, r.Name, cmp.Diff(message(t, url, r.Body), message(t, url, now.Body), protocmp.Transform()))
				}
			}
			for path, content := range s.read() {
				if f.ext != ".pb" && strings.Contains(content, "version_info: \"\"") {
					t.Errorf("%s has no version", path)
				}
			}
		})
	}
}

func message(t *testing.T, url string, body []byte) proto.Message {
	t.Helper()
	m, err := (&anypb.Any{TypeUrl: url, Value: body}).UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLossless(t *testing.T) {
	// newer has a field of a newer API version than this program's.
	newer := &clusterv3.Cluster{Name: "c", Metadata: &corev3.Metadata{}}
	newer.Metadata.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 12345, protowire.VarintType), 7))
	foreign := &clusterv3.Cluster{Name: "c", TransportSocket: &corev3.TransportSocket{Name: "t", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/not.Known", Value: []byte{8, 1}}}}}
	for name, tt := range map[string]struct {
		c      *clusterv3.Cluster
		format string
		want   string
	}{
		"newer as yaml":     {newer, "yaml", `CDS "c" cannot be written as yaml: metadata has fields that this program does not know: use --format pb, which keeps them`},
		"newer as text":     {newer, "pb_text", `CDS "c" cannot be written as pb_text: metadata has fields that this program does not know: use --format pb, which keeps them`},
		"newer as binary":   {newer, "pb", ""},
		"foreign as json":   {foreign, "json", `CDS "c" cannot be written as json: `},
		"foreign as text":   {foreign, "pb_text", ""},
		"foreign as binary": {foreign, "pb", ""},
		"unknown type":      {nil, "pb", `not.Known "x" cannot be written as pb: `},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFormat(tt.format)
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, t.TempDir(), Options{Format: f})
			unknown := xds.TypeOf("type.googleapis.com/not.Known")
			view := xds.Tables{unknown.URL: with(xds.NewTable(unknown), []*xds.Resource{xds.NewResource(unknown, "x", nil)})}
			if tt.c != nil {
				view = resourceList{tt.c}.view(t)
			}
			_, err = s.Export(t.Context(), view)
			if got := errorText(err); !strings.HasPrefix(strings.ReplaceAll(got, "Known \"x\"", "not.Known \"x\""), tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseFormat(t *testing.T) {
	for _, f := range formats {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Error(f, err)
		}
	}
	if _, err := ParseFormat("yml"); err == nil {
		t.Error("accepted yml")
	}
}
