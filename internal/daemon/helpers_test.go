package daemon

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

func cluster(name string) string {
	return `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster` + "\nname: " + name + "\n"
}

// keyed returns a cluster with a private key; if the key is "", without one.
func keyed(t *testing.T, name, key string) *xds.Resource {
	t.Helper()
	c := &clusterv3.Cluster{Name: name}
	if key != "" {
		tls := &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{
			PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: key}},
		}}}}
		a, err := anypb.New(tls)
		if err != nil {
			t.Fatal(err)
		}
		c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}
	}
	body, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return xds.NewResource(xds.Cluster, name, body)
}

// many returns a file of n clusters with consecutive numbers; the first is from.
func many(from, n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString("---\n" + cluster(fmt.Sprintf("c%02d", from+i)))
	}
	return out.String()
}
