package lastgood

import (
	"bufio"
	"bytes"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// A file has messages of the protocol, as files of earlier versions have.
func TestSAFE10RecordFormat(t *testing.T) {
	const url = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	full := Resource{
		Resource: &xds.Resource{Stamp: &xds.Stamp{Name: "n"}, Body: []byte("body"), Aliases: []string{"a", ""}, TTL: 90 * time.Millisecond, OnDemand: true},
		File:     "f.yaml", Line: 3, Col: 4, Path: "resources[1]",
	}
	full.Seal("7")
	bare := Resource{Resource: &xds.Resource{Stamp: &xds.Stamp{Name: "m"}}}
	bare.Seal("8")
	at := func(file, path string, line, col float64, onDemand bool) *corev3.Metadata {
		return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{place: {Fields: map[string]*structpb.Value{
			"file": structpb.NewStringValue(file), "line": structpb.NewNumberValue(line), "column": structpb.NewNumberValue(col),
			"path": structpb.NewStringValue(path), "on_demand": structpb.NewBoolValue(onDemand),
		}}}}
	}
	want := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, SystemVersionInfo: "v", Nonce: gone, Resources: []*discoveryv3.Resource{
		{Name: "n", Version: "7", Aliases: []string{"a", ""}, Ttl: durationpb.New(90 * time.Millisecond), Resource: &anypb.Any{TypeUrl: url, Value: []byte("body")}, Metadata: at("f.yaml", "resources[1]", 3, 4, true)},
		{Name: "m", Version: "8", Resource: &anypb.Any{TypeUrl: url}, Metadata: at("", "", 0, 0, false)},
	}}

	m := record{url: url, version: "v", kind: gone}
	for _, r := range []Resource{full, bare} {
		b, err := r.encode(url)
		if err != nil {
			t.Fatal(err)
		}
		m.resources = append(m.resources, b)
	}
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	if err := m.write(w); err != nil || w.Flush() != nil {
		t.Fatal(err)
	}
	var got discoveryv3.DeltaDiscoveryResponse
	if err := protodelim.UnmarshalFrom(bufio.NewReader(&out), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}

	var before bytes.Buffer
	if _, err := (protodelim.MarshalOptions{MarshalOptions: proto.MarshalOptions{Deterministic: true}}).MarshalTo(&before, want); err != nil {
		t.Fatal(err)
	}
	again, err := readRecord(bytes.NewReader(before.Bytes()))
	if err != nil || again.url != url || again.version != "v" || again.kind != gone || len(again.resources) != 2 {
		t.Fatalf("%+v, %v", again, err)
	}
	for i, wanted := range []Resource{full, bare} {
		r, err := decode(nil, again.resources[i])
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != wanted.Name || r.Version != wanted.Version || !bytes.Equal(r.Body, wanted.Body) || r.TTL != wanted.TTL || r.OnDemand != wanted.OnDemand ||
			!cmp.Equal(r.Aliases, wanted.Aliases) || r.File != wanted.File || r.Path != wanted.Path || r.Line != wanted.Line || r.Col != wanted.Col {
			t.Errorf("%+v, want %+v", r, wanted)
		}
	}
}

// Groups are stored. Files of earlier versions are read as the group of the root.
func TestSAFE10Groups(t *testing.T) {
	clusterType := xds.Cluster
	resource := func(name string) Resource {
		r := Resource{Resource: &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: clusterType, Body: []byte(name)}, File: name + ".yaml", Line: 1, Col: 2}
		r.Seal("1")
		return r
	}
	types := func(names ...string) []Type {
		t := Type{Type: clusterType, Version: "v"}
		for _, name := range names {
			t.Resources = append(t.Resources, resource(name))
		}
		return []Type{t}
	}
	at := time.Unix(1_700_000_000, 0).UTC()
	peaks := []Peak{{URL: clusterType.URL, N: 30, Until: at}}
	write := func(c Config) []byte {
		var out bytes.Buffer
		if _, err := c.write(&out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	full := Config{
		At: at, Types: types("a"), Gone: types("b"), Peaks: peaks,
		Groups:      []Group{{Name: "edge", Types: types("a", "c"), Gone: types("d"), Peaks: peaks}, {Name: "empty"}},
		Definitions: []Definition{{"edge/group.yaml", []byte("match: {}")}, {"empty/group.yaml", nil}},
	}
	names := func(all []Type) (s string) {
		for _, t := range all {
			for _, r := range t.Resources {
				s += r.Name + "@" + r.File + " "
			}
		}
		return s
	}
	got, err := parse(write(full))
	if err != nil || names(got.Types) != "a@a.yaml " || names(got.Gone) != "b@b.yaml " || len(got.Peaks) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if g := got.Groups; len(g) != 2 || g[0].Name != "edge" || names(g[0].Types) != "a@a.yaml c@c.yaml " || names(g[0].Gone) != "d@d.yaml " || !cmp.Equal(g[0].Peaks, peaks) || g[1].Name != "empty" || g[1].Types != nil {
		t.Errorf("%+v", g)
	}
	if d := got.Definitions; len(d) != 2 || d[0].Path != "edge/group.yaml" || string(d[0].Data) != "match: {}" || d[1].Path != "empty/group.yaml" || len(d[1].Data) != 0 {
		t.Errorf("%+v", d)
	}

	alone := Config{At: at, Types: types("a"), Peaks: peaks}
	data := write(alone)
	if !bytes.HasPrefix(data, []byte(formatNoGroups)) {
		t.Errorf("without groups, an older version cannot read the file: %q", data[:25])
	}
	if got, err := parse(data); err != nil || names(got.Types) != "a@a.yaml " || got.Groups != nil || got.Definitions != nil {
		t.Errorf("%+v, %v", got, err)
	}

	secret := full
	r := resource("s")
	r.Secret = true
	secret.Groups = []Group{{Name: "edge", Types: []Type{{Type: xds.Secret, Resources: []Resource{r}}}}}
	kept, err := secret.withoutSecrets()
	if err != nil || !kept.Groups[0].Types[0].Withheld || kept.Groups[0].Types[0].Resources != nil || len(secret.Groups[0].Types[0].Resources) != 1 {
		t.Errorf("%+v, %v", kept.Groups, err)
	}
	secret.Groups[0].Types[0].Type = xds.Cluster
	if _, err := secret.withoutSecrets(); err == nil {
		t.Error("a cluster with a secret is left out of a group")
	}
}
