package csds

import (
	"math"
	"strings"
	"testing"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// nested returns a value inside structs with the key k, or inside lists.
func nested(inside any, levels int, lists bool) any {
	for range levels {
		if lists {
			inside = []any{inside}
		} else {
			inside = map[string]any{"k": inside}
		}
	}
	return inside
}

// Decoders with the usual limit of 100 levels read an answer whatever the nodes send: metadata below 30 levels
// is a string with its JSON.
func TestDeepMetadataIsFlattened(t *testing.T) {
	for _, tt := range []struct {
		name   string
		levels int // of the value at the key "deep" of the metadata, which is a level itself
		lists  bool
		leaf   any
		want   string // the value inside all levels that are left
		left   int
	}{
		{"30 levels stay", 29, false, "x", "", 29},
		{"30 levels of lists stay", 29, true, "x", "", 29},
		{"level 31", 30, false, "x", `[flattened by Chancery] {"k":"x"}`, 29},
		{"lists", 31, true, 1.5, `[flattened by Chancery] [[1.5]]`, 29},
		{"no JSON form", 30, false, math.NaN(), "[flattened by Chancery] ", 29},
		{"45 levels", 44, false, "x", "[flattened by Chancery] " + strings.Repeat(`{"k":`, 15) + `"x"` + strings.Repeat("}", 15), 29},
		{"1,000 levels", 1000, false, "x", "[flattened by Chancery] " + strings.Repeat(`{"k":`, 971) + `"x"` + strings.Repeat("}", 971), 29},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := edge(t, "one")
			c.Node = &xds.Node{ID: "one", Metadata: metadata(t, map[string]any{"team": "a", "deep": nested(tt.leaf, tt.levels, tt.lists)})}
			client := dial(t, serve(t, service(c, edge(t, "two")), plain))
			got, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
			if err != nil || len(got.GetConfig()) != 2 {
				t.Fatal(got, err)
			}
			b, err := proto.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if err := (proto.UnmarshalOptions{RecursionLimit: 100}).Unmarshal(b, new(statusv3.ClientStatusResponse)); err != nil {
				t.Error(err)
			}
			node := got.GetConfig()[0].GetNode()
			if _, err := protojson.Marshal(node); err != nil {
				t.Error(err)
			}
			want := any(tt.want)
			if tt.want == "" {
				want = tt.leaf
			}
			all, err := structpb.NewStruct(map[string]any{"team": "a", "deep": nested(want, tt.left, tt.lists)})
			if err != nil {
				t.Fatal(err)
			}
			same(t, node.GetMetadata(), all)
		})
	}
}
