package main

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// A resource has one name: some clients read that in its body, and some around it.
func TestRelayOneName(t *testing.T) {
	check := readable(envoy.Envoy())
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

// SAFE-10: who sees what a relay serves sees that it is of the last run.
func TestRelayStatusFromDisk(t *testing.T) {
	o := overview{Status: &api.Status{}, list: &api.ClientList{}}
	o.Config.Upstream, o.Config.Resources = &api.Upstream{URL: "xds://up"}, 2
	var b strings.Builder
	o.print(&b, &output{}, api.Filter{})
	if !strings.Contains(b.String(), "revision 0 from disk (last good), the upstream is away\n") {
		t.Error(b.String())
	}
}

// An upstream that nobody wants anything of is not one that is lost.
func TestRelayStatusIdle(t *testing.T) {
	o := overview{Status: &api.Status{}, list: &api.ClientList{}}
	o.Config.Upstream = &api.Upstream{URL: "xds://up", Idle: true}
	var b strings.Builder
	o.print(&b, &output{}, api.Filter{})
	if want := "UPSTREAM xds://up: asked for nothing, as no client wants anything\n"; !strings.Contains(b.String(), want) {
		t.Error(b.String())
	}
}

// For status an upstream that is away is as a load that was rejected, and one that nobody wants anything of is well.
func TestRelayStatusCode(t *testing.T) {
	for _, tt := range []struct {
		of   *api.Upstream
		want bool
	}{
		{nil, false},
		{&api.Upstream{Connected: true}, false},
		{&api.Upstream{Idle: true}, false},
		{&api.Upstream{}, true},
		{&api.Upstream{Connected: true, Refused: 1}, true},
	} {
		if got := ails(tt.of); got != tt.want {
			t.Errorf("%+v: %v", tt.of, got)
		}
	}
}
