package explain

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

const plainCluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n"

// A client without access to a resource does not count for a change of that resource. A client whose only
// stream has another type does not count as unknown.
func TestImpactWithoutAccess(t *testing.T) {
	for name, tt := range map[string]struct {
		allowed bool
		only    *xds.Type
		change  string
		want    api.Impact
	}{
		"allowed":               {true, nil, "CDS", api.Impact{Connected: 1, Clients: 1, Bytes: 10}},
		"not allowed":           {false, nil, "CDS", api.Impact{Connected: 1}},
		"another type's stream": {true, xds.Cluster, "EDS", api.Impact{Connected: 1}},
	} {
		within(t, name, func(t *testing.T) {
			r := start(t, "a.yaml", plainCluster)
			r.deps.Allowed = func(*server.Stream, *xds.Node, *xds.Type, string) (bool, string) { return tt.allowed, "" }
			r.Explainer = New(r.deps)
			c := xdstest.Delta(t, r.conn, r.node("edge-1"), xdstest.WithType(tt.only))
			c.Subscribe(xds.Cluster, "*")
			c.ACK(c.Expect(xds.Cluster, "a"))
			got, err := r.Impact(context.Background(), api.ImpactRequest{Changes: []api.ImpactChange{{Type: tt.change, Name: "a", Bytes: 10}}})
			if err != nil || got.Connected != tt.want.Connected || got.Clients != tt.want.Clients || got.Unknown != 0 || got.Bytes != tt.want.Bytes {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// SotW cannot express the removal of a resource that is subscribed to by name, so no bytes are pushed.
// Delta can express it.
func TestImpactOfRemovals(t *testing.T) {
	for name, tt := range map[string]struct {
		client func(xdstest.T, grpc.ClientConnInterface, ...xdstest.Option) *xdstest.Client
		want   int // number of pushes
	}{
		"SotW":  {xdstest.SotW, 0},
		"delta": {xdstest.Delta, 1},
	} {
		within(t, name, func(t *testing.T) {
			r := start(t, "a.yaml", "\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\ncluster_name: a\n")
			c := tt.client(t, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Endpoint, "a")
			c.ACK(c.Expect(xds.Endpoint, "a"))
			got, err := r.Impact(context.Background(), api.ImpactRequest{Changes: []api.ImpactChange{{Type: "EDS", Name: "a"}}})
			pushes := 0
			for _, of := range got.Types {
				pushes += of.Pushes
			}
			if err != nil || got.Clients != 1 || pushes != tt.want {
				t.Errorf("%+v, %v, want %d pushes", got, err, tt.want)
			}
		})
	}
}
