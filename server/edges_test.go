package server

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func TestDrainOfNoServer(t *testing.T) {
	var s *Server
	if err := s.Drain(t.Context()); !errors.Is(err, errNotMade) {
		t.Error(err)
	}
	if err := new(Server).Drain(t.Context()); !errors.Is(err, errNotMade) {
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
		req := v.request() // the client states the version that it got, and refuses it
		req.Error = &xds.Status{Code: 3, Message: "invalid"}
		v.refuses = true
		v.poll(req)
		if acks, nacks := w.seen.of(protocol.Acked), w.seen.of(protocol.Nacked); len(acks) != 0 || len(nacks) != 1 {
			t.Errorf("%d ACKs, %d NACKs", len(acks), len(nacks))
		}
	})
}

func TestDefaultLimits(t *testing.T) {
	want := Limits{
		Streams: 100_000, Silent: 2000, Polls: 10_000, Others: 1000, Types: 64, Names: 100_000, NameLen: 4096, Held: 128 << 20, Node: 256 << 10,
		Rate: 1000, AddressRate: 100_000, StreamRate: 300, FirstAnswers: 50, Unfinished: 48 << 20, Response: 3 << 20,
	}
	if got := DefaultLimits(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestMemoryOfANode(t *testing.T) {
	n := &xds.Node{ID: "1", Cluster: "22", UserAgentName: "4444", UserAgentVersion: strings.Repeat("8", 8), Region: strings.Repeat("r", 16),
		Zone: strings.Repeat("z", 32), SubZone: strings.Repeat("s", 64), Metadata: make([]byte, 128)}
	if got := size(n); got != 255 {
		t.Errorf("%d bytes, want 255", got)
	}
}

func TestServicesNameTheirFile(t *testing.T) {
	for _, d := range serve(t, WithV2()).services() {
		if file, _ := d.Metadata.(string); !strings.HasSuffix(file, ".proto") {
			t.Errorf("%s is of file %q", d.ServiceName, file)
		}
	}
}

func TestFirstRequestTimeout(t *testing.T) {
	within(t, "SAFE-9", func(t *testing.T) {
		w := serve(t, WithFirstRequestTimeout(3*time.Second))
		silent := w.sotw(t, w.dial(t))
		begin := time.Now()
		if err := silent.end(); status.Code(err) != codes.DeadlineExceeded || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestOneFetchIsNotTooFast(t *testing.T) {
	within(t, "SAFE-9", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		var r discovery.DiscoveryResponse
		if err := w.dial(t).Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, &discovery.DiscoveryRequest{}, &r); err != nil {
			t.Fatal(err)
		}
		if log := w.log.String(); log != "" {
			t.Error(log)
		}
	})
}

func TestLogOfNACKNamesItsStream(t *testing.T) {
	within(t, "the attribute stream", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		r := c.want()
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce, ErrorDetail: status.New(codes.Internal, "bad").Proto()})
		synctest.Wait()
		if log := w.log.String(); !strings.Contains(log, " stream=") || !strings.Contains(log, "(NACK)") {
			t.Error(log)
		}
	})
}

// A panic that a client causes again and again is logged once, and counted in a later line.
func TestRepeatedPanicsAreCounted(t *testing.T) {
	within(t, "SAFE-9", func(t *testing.T) {
		w := serve(t)
		st := &Stream{ID: 7, Node: &xds.Node{ID: "n"}}
		for range 3 {
			w.panicked(st, panics.Do(func() { panic("the same") }))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		log := w.log.String()
		if strings.Count(log, "the same") != 2 || strings.Count(log, "repeated=2") != 1 {
			t.Error(log)
		}
	})
}
