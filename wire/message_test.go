package wire

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

func TestTypeOf(t *testing.T) {
	c := &clusterv3.Cluster{Name: "backend"}
	for name, tc := range map[string]struct {
		m    proto.Message
		want *xds.Type
	}{
		"a message of the table": {c, xds.Cluster},
		"a nil pointer":          {(*clusterv3.Cluster)(nil), xds.Cluster},
		"an Any":                 {pack(t, c), xds.Cluster},
		"an Any of v2":           {&anypb.Any{TypeUrl: xds.Cluster.Legacy().URL}, xds.Cluster.Legacy()},
		"another message":        {&structpb.Struct{}, xds.TypeOf("type.googleapis.com/google.protobuf.Struct")},
		"nil":                    {nil, nil},
		"an empty Any":           {&anypb.Any{}, nil},
		"a nil Any":              {(*anypb.Any)(nil), nil},
	} {
		t.Run("TYP-7 "+name, func(t *testing.T) {
			if got := TypeOf(tc.m); !got.Is(tc.want) || got.Known() != tc.want.Known() {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFromMessage(t *testing.T) {
	c := &clusterv3.Cluster{Name: "backend"}
	want, err := NewResource(xds.Cluster, "", c)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]proto.Message{"a message": c, "an Any": pack(t, c)} {
		t.Run("TYP-7 "+name, func(t *testing.T) {
			got, err := FromMessage(m)
			if err != nil || got.Type != xds.Cluster || got.Name != "backend" || got.Sum != want.Sum || len(got.Refs) != len(want.Refs) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	for name, tc := range map[string]struct {
		m    proto.Message
		want string
	}{
		"nil":                        {nil, "the message is nil"},
		"a nil pointer":              {(*clusterv3.Cluster)(nil), `CDS resource "": the message is nil`},
		"an empty Any":               {&anypb.Any{}, "an Any without a type URL"},
		"no name":                    {&clusterv3.Cluster{}, "CDS resource without a name"},
		"no field for it":            {&routev3.VirtualHost{Name: "v"}, "VHDS resource without a name"},
		"an unlisted type":           {&structpb.Struct{}, "Struct resource without a name"},
		"an Any of an unlinked type": {&anypb.Any{TypeUrl: "type.googleapis.com/my.Own"}, "Own resource: "},
	} {
		t.Run("TYP-7 "+name, func(t *testing.T) {
			if r, err := FromMessage(tc.m); r != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v, want %s", r, err, tc.want)
			}
		})
	}
}
