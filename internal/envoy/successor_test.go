package envoy

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

func TestSuccessor(t *testing.T) {
	for name, want := range map[protoreflect.FullName]protoreflect.FullName{
		"envoy.api.v2.Cluster":                  "envoy.config.cluster.v3.Cluster",
		"envoy.api.v2.auth.UpstreamTlsContext":  "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"envoy.config.filter.http.lua.v2.Lua":   "envoy.extensions.filters.http.lua.v3.Lua",
		"envoy.config.cluster.v3.Cluster":       "",
		"envoy.api.v2.Cluster.EdsClusterConfig": "envoy.config.cluster.v3.Cluster.EdsClusterConfig",
		"no.such.Message":                       "",
	} {
		if got := Envoy().Successor(name); got != want {
			t.Errorf("successor of %s: %q, want %q", name, got, want)
		}
	}
	// Nearly all v2 messages have a known successor.
	all, known := 0, 0
	Envoy().RangeMessages(func(m protoreflect.MessageType) bool {
		if name := m.Descriptor().FullName(); strings.HasPrefix(string(name), "envoy.api.v2.") && name.Parent() == "envoy.api.v2" {
			all++
			if Envoy().Successor(name) != "" {
				known++
			}
		}
		return true
	})
	if all == 0 || known < all/2 {
		t.Errorf("of %d v2 messages, %d have a known successor", all, known)
	}
}
