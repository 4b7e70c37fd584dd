package server

import (
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func TestDrainOfNoServer(t *testing.T) {
	var s *Server
	if err := s.Drain(t.Context()); err != errNotMade {
		t.Error(err)
	}
	if err := new(Server).Drain(t.Context()); err != errNotMade {
		t.Error(err)
	}
}

func TestServicesHaveNames(t *testing.T) {
	for _, d := range serve(t).services() {
		if !strings.HasPrefix(d.ServiceName, "envoy.service.") {
			t.Errorf("service %q", d.ServiceName)
		}
	}
}

// A registrar that is not a grpc.Server may call the handlers without interceptors.
func TestFetchWithoutInterceptor(t *testing.T) {
	within(t, "REST-6", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		b, err := proto.Marshal(&discovery.DiscoveryRequest{})
		if err != nil {
			t.Fatal(err)
		}
		decode := func(m any) error {
			*m.(*message) = message{data: mem.BufferSlice{mem.SliceBuffer(b)}, coded: true}
			return nil
		}
		handler := w.service(xds.Cluster, xds.Cluster, nil).Methods[0].Handler
		got, err := handler(nil, t.Context(), decode, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, ok := got.(*message)
		var r discovery.DiscoveryResponse
		if !ok || proto.Unmarshal(m.data.Materialize(), &r) != nil || len(r.Resources) != 1 {
			t.Errorf("%v: %v", got, &r)
		}
	})
}

// The memory of a request counts the names and versions of initial_resource_versions.
func TestMemoryOfARequest(t *testing.T) {
	t.Run("SAFE-9", func(t *testing.T) {
		empty := holds(&xds.Request{})
		r := &xds.Request{Initial: []xds.Version{{Name: strings.Repeat("n", 100), Version: strings.Repeat("v", 10)}, {}}}
		if got, want := holds(r)-empty, 110+2*64; got != want {
			t.Errorf("%d bytes, want %d", got, want)
		}
	})
}

func TestPollWithAnErrorIsNoACK(t *testing.T) {
	within(t, "REST-3", func(t *testing.T) {
		w := newPollWorld(t)
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		req := v.request() // it states the version that it got, and refuses it
		req.Error = &xds.Status{Code: 3, Message: "invalid"}
		v.refuses = true
		v.poll(req)
		if acks, nacks := w.seen.of(protocol.Acked), w.seen.of(protocol.Nacked); len(acks) != 0 || len(nacks) != 1 {
			t.Errorf("%d ACKs, %d NACKs", len(acks), len(nacks))
		}
	})
}
