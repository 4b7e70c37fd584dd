package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// A response above the limit has no content, but an answer can still be sent.
func TestResponseLimit(t *testing.T) {
	limit := xds.MemoryLimit{Bytes: 100 << 10, Hint: "--more"}
	aliases := make([]string, 2000)
	for i := range aliases {
		aliases[i] = fmt.Sprint("alias-", i)
	}
	body := &anypb.Any{TypeUrl: xds.Cluster.URL, Value: []byte("\x0a\x01a")}
	for name, r := range map[string]*discovery.DeltaDiscoveryResponse{
		"bytes":          {ControlPlane: nil, RemovedResources: []string{strings.Repeat("x", 100<<10)}},
		"removed names":  {RemovedResources: make([]string, 200)},
		"resources":      {Resources: make([]*discovery.Resource, 200)},
		"aliases":        {Resources: []*discovery.Resource{{Name: "a", Aliases: aliases, Resource: body}}},
		"errors":         {ResourceErrors: make([]*discovery.ResourceError, 200)},
		"names of names": {RemovedResourceNames: make([]*discovery.ResourceName, 200)},
	} {
		t.Run("SAFE-14 "+name, func(t *testing.T) {
			r.TypeUrl, r.Nonce = xds.Cluster.URL, "n"
			b, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeResponse(xds.Delta, b, ResponseOptions{Limit: limit})
			if err != nil || got.Nonce != "n" || !got.Type.Is(xds.Cluster) || len(got.Malformed) != 1 || len(got.Upserts)+len(got.Removed) > 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			over, is := errors.AsType[*xds.LimitError](got.Malformed[0])
			if !is || over.Limit != xds.LimitResponse || !strings.Contains(over.Error(), "102400 bytes (--more)") {
				t.Errorf("%v", got.Malformed)
			}
		})
	}
}

func TestResponseTokensAreLimited(t *testing.T) {
	long := strings.Repeat("x", maxToken+1)
	for _, r := range []*discovery.DiscoveryResponse{{Nonce: long}, {VersionInfo: long}} {
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeResponse(xds.SotW, b, ResponseOptions{}); err == nil || len(err.Error()) > 200 {
			t.Errorf("SAFE-14 %v", err)
		}
	}
}

// The client keeps the names of malformed resources, and sends names and versions to the server.
func TestNamesOfResourcesAreLimited(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	body := func(name string) *anypb.Any {
		return &anypb.Any{TypeUrl: xds.Cluster.URL, Value: appendName(name)}
	}
	for what, tt := range map[string]struct {
		r    *discovery.Resource
		bare bool
		name string
	}{
		"a name":             {&discovery.Resource{Name: long, Resource: body(long)}, false, ""},
		"a version":          {&discovery.Resource{Name: "a", Version: long, Resource: body("a")}, false, "a"},
		"a name in the body": {&discovery.Resource{Resource: body(long)}, true, ""},
		"of a heartbeat":     {&discovery.Resource{Name: long, Version: "1"}, false, ""},
	} {
		t.Run("SAFE-14 "+what, func(t *testing.T) {
			v, m := xds.Delta, proto.Message(&discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*discovery.Resource{tt.r}})
			if tt.bare {
				v, m = xds.SotW, &discovery.DiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*anypb.Any{tt.r.Resource}}
			}
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			r, err := DecodeResponse(v, b, ResponseOptions{})
			if err != nil || len(r.Malformed) != 1 || len(r.Upserts)+len(r.Beats) > 0 || xds.MalformedName(r.Malformed[0]) != tt.name || len(r.Malformed[0].Error()) > 200 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func appendName(name string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
}

// A server may send types that the client does not use.
func TestMemoryIsLimited(t *testing.T) {
	var m Memory
	for i := range 20 {
		url := fmt.Sprintf("type.googleapis.com/some.Type%d", i)
		b, err := proto.Marshal(&discovery.DiscoveryResponse{TypeUrl: url, Resources: []*anypb.Any{{TypeUrl: url, Value: appendName(strings.Repeat("x", 30<<10))}}})
		if err != nil {
			t.Fatal(err)
		}
		o := ResponseOptions{Memory: &m, Limit: xds.MemoryLimit{Bytes: 100 << 10}, Name: func(*xds.Type, []byte) string { return "a" }}
		if _, err := DecodeResponse(xds.SotW, b, o); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.types) != 3 || len(m.costs) != 3 {
		t.Errorf("SAFE-14 %d types are remembered, want 3", len(m.types))
	}
}
