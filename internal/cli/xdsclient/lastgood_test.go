package xdsclient

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// Some clients read a resource's name in its body, and others in the message around it. Both names must
// be equal.
func TestBodyCheckRejectsAnotherName(t *testing.T) {
	check := BodyCheck(envoy.Envoy())
	for _, tt := range []struct {
		typ  *xds.Type
		name string
		m    proto.Message
		want string
	}{
		{xds.Cluster, "a", &clusterv3.Cluster{Name: "a"}, ""},
		{xds.Cluster, "a", &clusterv3.Cluster{Name: "b"}, `resource "a" is called "b" in its body`},
		{xds.Cluster, "a", &clusterv3.Cluster{}, ""},
		{xds.Cluster, "xdstp://a/t/c?x=1&y=2", &clusterv3.Cluster{Name: "xdstp://a/t/c?y=2&x=1"}, ""},
		{xds.VirtualHost, "route/host", &routev3.VirtualHost{Name: "host"}, ""},
		{xds.TypeOf("type.googleapis.com/x.Y"), "a", &clusterv3.Cluster{Name: "b"}, ""},
	} {
		body, err := proto.Marshal(tt.m)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := check(xds.NewResource(tt.typ, tt.name, body)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.typ, tt.name, got, tt.want)
		}
	}
}
