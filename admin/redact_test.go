package admin

import (
	"context"
	"fmt"
	"runtime"
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

// SAFE-6: a redactor knows the secrets of each view that a watch returned, also of versions that were replaced at once.
func TestSAFE6RedactorKnowsEachView(t *testing.T) {
	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.Cluster, "b"}, nil }))
	r := newRedactor(st, envoy.Envoy())
	says := func(typ *xds.Type, want string) {
		t.Helper()
		got, ok := r.redact(nil, typ, "has hunter2Quokkas and swordfish")
		if !ok {
			got = "withheld"
		}
		if got != want {
			t.Errorf("SAFE-6 %s: %q, want %q", typ, got, want)
		}
	}
	w, err := shown{SourceOf(st), r}.Watch(t.Context(), &xds.Node{Cluster: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := func() {
		t.Helper()
		if _, _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	set(t, st, "a", keyed(t, "a", "hunter2Quokkas"))
	set(t, st, "b", keyed(t, "b", "swordfish"))
	says(xds.Cluster, "has hunter2Quokkas and swordfish") // no client can quote it
	next()
	set(t, st, "a", keyed(t, "a", "other-secret"))
	says(xds.Cluster, "has … and …")
	next()
	says(xds.Cluster, "has … and …")
	says(xds.Listener, "has hunter2Quokkas and swordfish")

	r.turn <- struct{}{} // a long search
	says(xds.Cluster, "withheld")
	<-r.turn
}

// The memory of a redactor does not grow with the number of versions.
func TestRedactorForgets(t *testing.T) {
	st := store.New()
	r := newRedactor(st, envoy.Envoy())
	w, err := shown{SourceOf(st), r}.Watch(t.Context(), new(xds.Node))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range 3 * minAdded {
		set(t, st, store.DefaultGroup, resource(t, xds.Cluster, &clusterv3.Cluster{Name: "a", AltStatName: fmt.Sprint(i)}))
		if _, _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
		r.search(time.Now())
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	if n := len(r.added); n > 2*minAdded {
		t.Errorf("%d resources are remembered", n)
	}
}
