package admin

import (
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// keyed returns a cluster with a private key.
func keyed(t *testing.T, name, key string) *xds.Resource {
	t.Helper()
	socket, err := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: key}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	return resource(t, xds.Cluster, &clusterv3.Cluster{Name: name, TransportSocket: &corev3.TransportSocket{
		Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: socket},
	}})
}

// SAFE-6: a redactor withholds a text if a version may have had a secret that no look has seen.
func TestSAFE6RedactorWithholds(t *testing.T) {
	st := store.New()
	r := newRedactor(st, envoy.Envoy())
	says := func(typ *xds.Type, want string) {
		t.Helper()
		got, ok := r.redact(nil, typ, "has hunter2Quokkas and swordfish")
		if !ok {
			got = "withheld"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", typ, got, want)
		}
	}
	set(t, st, "a", keyed(t, "a", "hunter2Quokkas"))
	says(xds.Cluster, "has … and swordfish")
	set(t, st, "b", keyed(t, "a", "swordfish"))
	says(xds.Cluster, "has … and …")
	set(t, st, "b", keyed(t, "a", "other-secret"))
	says(xds.Cluster, "has … and …") // the client may refuse the earlier version

	set(t, st, "b", keyed(t, "b", "unseen-secret"))
	set(t, st, "b", keyed(t, "b", "other-secret"))
	says(xds.Cluster, "withheld")
	says(xds.Listener, "has hunter2Quokkas and swordfish")
	r.skipped[xds.Cluster.URL] = time.Now().Add(-2 * lateAfter)
	says(xds.Cluster, "has … and …")

	r.turn <- struct{}{} // a look at many resources
	says(xds.Cluster, "withheld")
	<-r.turn

	few := store.New(store.WithLog(1))
	r = newRedactor(few, envoy.Envoy())
	set(t, few, store.DefaultGroup, keyed(t, "a", "hunter2Quokkas"))
	says(xds.Cluster, "has … and swordfish")
	for i := range 5 {
		set(t, few, store.DefaultGroup, keyed(t, "b", fmt.Sprint("unseen-secret", i)))
	}
	says(xds.Cluster, "withheld")
}
