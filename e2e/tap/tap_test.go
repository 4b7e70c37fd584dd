package tap

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// echo answers each request with one cluster, and a NACK with an end.
type echo struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (echo) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		req, err := s.Recv()
		if err != nil {
			return nil
		}
		if req.GetErrorDetail() != nil {
			return grpcstatus.Error(codes.ResourceExhausted, "enough")
		}
		c, err := anypb.New(&cluster.Cluster{Name: "c"})
		if err != nil {
			return err
		}
		if err := s.Send(&discovery.DiscoveryResponse{TypeUrl: req.GetTypeUrl(), VersionInfo: "v", Nonce: "1", Resources: []*anypb.Any{c}}); err != nil {
			return err
		}
	}
}

func TestTap(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(srv, echo{})
	go srv.Serve(l)
	defer srv.Stop()
	tp, err := New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer tp.Close()
	conn, err := grpc.NewClient(tp.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	open := func() discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	s := open()
	s.Send(&discovery.DiscoveryRequest{TypeUrl: urls["CDS"], Node: &core.Node{Id: "n"}})
	if r, err := s.Recv(); err != nil || r.GetNonce() != "1" || len(r.GetResources()) != 1 {
		t.Fatal("passed on:", r, err)
	}
	s.Send(&discovery.DiscoveryRequest{TypeUrl: urls["CDS"], ResponseNonce: "1", ErrorDetail: &status.Status{Code: 3, Message: "no\nway"}})
	if _, err := s.Recv(); grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Fatal("the server's status:", err)
	}
	rs, ok := tp.Await(ctx, 0, func(rs Records) bool { return len(rs) == 5 })
	if !ok {
		t.Fatal(rs)
	}
	want := `#1 OPEN /envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources
#1 C> CDS +node
#1    <S CDS version_info="v" nonce="1" resources=["c"]
#1 C> CDS NACK response_nonce="1" code=3 err="no\nway"
#1 CLOSE ResourceExhausted: enough
`
	var got strings.Builder
	for line := range strings.Lines(rs.String()) {
		got.WriteString(line[len("    0.000 "):])
	}
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}

	s = open()
	s.Send(&discovery.DiscoveryRequest{TypeUrl: urls["CDS"]})
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	p := tp.Mark("cut")
	tp.Cut()
	if _, err := s.Recv(); grpcstatus.Code(err) != codes.Unavailable {
		t.Error("a stream that is cut:", err)
	}
	tp.Restore()
	s = open()
	s.Send(&discovery.DiscoveryRequest{TypeUrl: urls["CDS"]})
	if _, err := s.Recv(); err != nil {
		t.Error("after it is restored:", err)
	}
	if n := len(tp.Since(p).Responses("CDS")); n != 1 {
		t.Errorf("%d responses", n)
	}
}

func TestHold(t *testing.T) {
	tp := &Tap{}
	release := tp.Hold(func(r Record) bool { return r.Type == "EDS" })
	tp.wait(t.Context(), Record{Type: "CDS"})
	done, cancel := context.WithCancel(t.Context())
	cancel()
	tp.wait(done, Record{Type: "EDS"}) // the stream is gone
	passed := make(chan struct{})
	go func() { tp.wait(t.Context(), Record{Type: "EDS"}); close(passed) }()
	select {
	case <-passed:
		t.Error("passed while held")
	case <-time.After(20 * time.Millisecond):
	}
	release()
	<-passed
}

func TestViolations(t *testing.T) {
	resp := func(nonce string, names ...string) Record {
		r := Record{Stream: 1, Kind: Response, Type: "CDS", Nonce: nonce}
		for _, n := range names {
			r.Resources = append(r.Resources, Resource{Name: n, URL: urls["CDS"], Sum: "1"})
		}
		return r
	}
	nack := func(nonce string) Record {
		return Record{Stream: 1, Kind: Request, Type: "CDS", Nonce: nonce, nacked: true}
	}
	removed := resp("1", "a")
	removed.Removed = []string{"a"}
	other := resp("1", "a")
	other.Resources[0].URL = urls["EDS"]
	for _, tt := range []struct {
		want string // "" for none
		rs   Records
	}{
		{"", Records{resp("1", "a", "b"), resp("2", "a")}},
		{"", Records{resp("1", "a"), nack("1"), resp("2", "b"), resp("3", "a")}},
		{"SOTW-2", Records{resp("", "a")}},
		{"SOTW-2", Records{resp("1", "a"), resp("1", "b")}},
		{"SOTW-5", Records{resp("1", "a"), nack("1"), resp("2", "a")}},
		{"SOTW-14", Records{resp("1", "a", "a")}},
		{"DELTA-1", Records{removed}},
		{"TYP-7", Records{other}},
	} {
		got := tt.rs.Violations()
		if len(got) == 0 && tt.want != "" || len(got) > 0 && (tt.want == "" || !strings.HasPrefix(got[0], tt.want)) {
			t.Errorf("want %q, got %q in\n%s", tt.want, got, tt.rs)
		}
	}
}

func TestQuiet(t *testing.T) {
	sent := Record{Stream: 1, Kind: Response, Type: "CDS", Nonce: "1"}
	again := Record{Stream: 1, Kind: Response, Type: "CDS", Nonce: "2"}
	for _, tt := range []struct {
		name string
		rs   Records
		want bool
	}{
		{"nothing", nil, true},
		{"unanswered", Records{sent}, false},
		{"answered", Records{sent, {Stream: 1, Kind: Request, Type: "CDS", Nonce: "1"}}, true},
		{"the older answered", Records{sent, again, {Stream: 1, Kind: Request, Type: "CDS", Nonce: "1"}}, false},
		{"the newer answered", Records{sent, again, {Stream: 1, Kind: Request, Type: "CDS", Nonce: "2"}}, true},
		{"answered elsewhere", Records{sent, {Stream: 2, Kind: Request, Type: "CDS", Nonce: "1"}}, false},
		{"another type", Records{sent, {Stream: 1, Kind: Request, Type: "EDS", Nonce: "1"}}, false},
		{"stream gone", Records{sent, {Stream: 1, Kind: Close}}, true},
		{"another stream gone", Records{sent, {Stream: 11, Kind: Close}}, false},
	} {
		if got := tt.rs.Quiet(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
