package secrets

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// keyed returns a cluster with a private key; "": without one.
func keyed(t *testing.T, name, key string) *xds.Resource {
	t.Helper()
	c := &clusterv3.Cluster{Name: name}
	if key != "" {
		c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t, &tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{PrivateKey: text(key)}}},
		})}}
	}
	body, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return xds.NewResource(xds.Cluster, name, body)
}

// SAFE-6: a client's text is shown without the secrets of resources that are served or were served in
// the last 5 minutes. It is not shown if some of the secrets are unknown.
func TestSAFE6KnownSecrets(t *testing.T) {
	served := map[string]*xds.Resource{}
	c := NewKnown(envoy.Envoy(), func(_ *xds.Type, name string, body []byte) bool {
		return served[name] != nil && bytes.Equal(served[name].Body, body)
	})
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	serve := func(seconds int, r *xds.Resource) {
		c.Note(r, at(seconds))
		served[r.Name] = r
	}
	says := func(seconds int, typ *xds.Type, want string) {
		t.Helper()
		got, ok := c.Redacted(typ, "has hunter2Quokkas and swordfish", at(seconds))
		if !ok {
			got = "withheld"
		}
		if got != want {
			t.Errorf("after %d s: %q, want %q", seconds, got, want)
		}
	}
	serve(0, keyed(t, "a", ""))
	says(0, xds.Cluster, "has hunter2Quokkas and swordfish")
	c.Note(keyed(t, "b", "hunter2Quokkas"), at(1)) // about to be served
	says(1, xds.Cluster, "has … and swordfish")
	says(1, xds.Listener, "has hunter2Quokkas and swordfish")
	serve(2, keyed(t, "b", "hunter2Quokkas"))
	says(1000, xds.Cluster, "has … and swordfish")
	serve(1001, keyed(t, "b", "swordfish"))
	says(1002, xds.Cluster, "has … and …")
	says(1301, xds.Cluster, "has … and …")
	says(1303, xds.Cluster, "has hunter2Quokkas and …")
	delete(served, "b")
	says(1304, xds.Cluster, "has hunter2Quokkas and …")
	says(1605, xds.Cluster, "has hunter2Quokkas and swordfish")
	c.Note(&xds.Resource{Type: xds.Cluster, Stamp: &xds.Stamp{Name: "x"}, Body: []byte{0xff}}, at(1700))
	says(1701, xds.Cluster, "withheld")
	says(2002, xds.Cluster, "has hunter2Quokkas and swordfish")
	for i := range 5000 {
		c.Note(keyed(t, fmt.Sprint("many", i), "hunter2Quokkas"), at(3000+i))
	}
	if c.n > 2048 {
		t.Errorf("%d resources are remembered", c.n)
	}
}
