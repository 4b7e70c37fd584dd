package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/faults"
	pb "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
	"github.com/chancery-xds/chancery/store"
)

// piped is an in-memory listener with an address.
type piped struct {
	at     net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *piped) Addr() net.Addr { return p.at }
func (p *piped) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *piped) dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- at{there, p.at}:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// servedInMemory serves in memory until the test ends, and returns a dialer.
func servedInMemory(t *testing.T, s *Server, at net.Addr) *piped {
	t.Helper()
	l := &piped{at: at, conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// at is a connection with an address.
type at struct {
	net.Conn
	addr net.Addr
}

func (a at) LocalAddr() net.Addr { return a.addr }

// ofEndpoints returns a gRPC client.
func (p *piped) ofEndpoints(t *testing.T) pb.EndpointsClient {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(p.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return pb.NewEndpointsClient(c)
}

var ofUnix = &net.UnixAddr{Name: "/s", Net: "unix"}

// A calling is an open stream.
type calling struct {
	*testing.T
	pb.Endpoints_RegisterClient
	n uint64 // requests sent
}

func call(t *testing.T, c pb.EndpointsClient, opts ...grpc.CallOption) *calling {
	t.Helper()
	g, err := c.Register(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &calling{t, g, 0}
}

// says sends a request and waits for the answer. refused has "STEP FIELD MESSAGE" for each rejected step.
func (c *calling) says(r *pb.RegisterRequest, refused ...string) (lost bool) {
	c.Helper()
	if err := c.Send(r); err != nil {
		c.Fatal(err)
	}
	c.n++
	got, err := c.Recv()
	if err != nil || got.Done != c.n {
		c.Fatal(got, err)
	}
	var all []string
	for _, one := range got.Refused {
		step := "-"
		if one.Step != nil {
			step = fmt.Sprint(one.GetStep())
		}
		all = append(all, step+" "+one.Field+" "+one.Message)
		if one.Request != c.n {
			c.Error(one)
		}
	}
	if !slices.EqualFunc(all, refused, strings.HasPrefix) {
		c.Errorf("refused:\n%s\nwant\n%s", strings.Join(all, "\n"), strings.Join(refused, "\n"))
	}
	return got.Lost
}

// ends waits for the end of the stream.
func (c *calling) ends(code codes.Code, text string) {
	c.Helper()
	for {
		_, err := c.Recv()
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), text) {
			c.Errorf("%v, want %v %s", err, code, text)
		}
		return
	}
}

func put(cluster, address string, port uint32) *pb.Step {
	return &pb.Step{Cluster: cluster, Change: &pb.Step_Put{Put: &pb.Endpoint{Address: address, Port: port}}}
}

func replace(cluster string, all ...*pb.Endpoint) *pb.Step {
	return &pb.Step{Cluster: cluster, Change: &pb.Step_Replace{Replace: &pb.Replacement{Endpoints: all}}}
}

func steps1(all ...*pb.Step) *pb.RegisterRequest { return &pb.RegisterRequest{Steps: all} }

// registrations returns the IDs by cluster.
func registrations(s *Server) string {
	var all []string
	for _, l := range s.Endpoints.List("", "") {
		for _, one := range s.Endpoints.List(l.Group, l.Name) {
			var ids []string
			for _, e := range one.Endpoints {
				ids = append(ids, e.ID)
			}
			all = append(all, endpoints.Key{Cluster: one.Cluster}.String()+" "+strings.Join(ids, ","))
		}
	}
	return strings.Join(all, "; ")
}

// A gRPC stream puts, removes, replaces and releases. Errors name the request, the step and the field,
// and do not affect other steps.
func TestRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registering(t)
		c := call(t, servedInMemory(t, s, ofUnix).ofEndpoints(t))
		has := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := registrations(s); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		a, b := &pb.Endpoint{Id: "a", Address: "10.0.0.1", Port: 80}, &pb.Endpoint{Id: "b", Address: "10.0.0.2", Port: 80}
		c.says(steps1(
			put("x", "10.0.0.1", 80), put("x", "10.0.0.2", 0), put("x", "ten", 1), put("", "10.0.0.1", 80), &pb.Step{Cluster: "x"},
			put("x", "10.0.0.3", 1<<31), &pb.Step{Cluster: "x", Group: "none", Change: &pb.Step_Put{Put: a}}, &pb.Step{Cluster: "x", Change: &pb.Step_Put{Put: &pb.Endpoint{Address: "10.0.0.4", Port: 1, Health: 9}}},
			&pb.Step{Cluster: "x", Change: &pb.Step_Remove{}}, put("x", "10.0.0.5", 80),
		), "1 port must be 1 to 65535", `2 address "ten" is not an IP address`, "3 cluster is missing", "4  must have exactly one of put, remove, replace and release",
			"5 port must be", "6 group ", `7 health "9" is not one of`, "8 id is missing")
		has("x 10.0.0.1:80,10.0.0.5:80")
		c.says(&pb.RegisterRequest{})
		c.says(steps1(&pb.Step{Cluster: "x", Change: &pb.Step_Remove{Remove: "10.0.0.1:80"}}, &pb.Step{Cluster: "x", Change: &pb.Step_Remove{Remove: "none"}}))
		has("x 10.0.0.5:80")
		c.says(steps1(replace("x", a, b), replace("y"), replace("x", &pb.Endpoint{Address: "10.0.0.1", Port: 80}, &pb.Endpoint{Address: "10.0.0.1"}),
			replace("x", a, a), replace("x", a, b, a, b)), "2 endpoints[1].port must be", `3 endpoints[1].id "a" is also the ID of`, "4  too many endpoints of a cluster: at most 3")
		has("x a; y ")
		c.says(steps1(replace("x", a, b)))
		c.says(steps1(&pb.Step{Cluster: "y", Change: &pb.Step_Release{Release: &emptypb.Empty{}}}, &pb.Step{Cluster: "z", Change: &pb.Step_Release{Release: &emptypb.Empty{}}}))
		has("x a,b")
		c.says(&pb.RegisterRequest{Ttl: durationpb.New(time.Minute), Steps: []*pb.Step{put("x", "10.0.0.9", 9)}}, "- ttl must be that of the first request")
		has("x a,b")
		c.says(steps1(slices.Repeat([]*pb.Step{put("x", "10.0.0.9", 9)}, maxSteps+1)...), "- steps has 1001 steps: at most 1000 are allowed")
		c.says(steps1(replace("x", slices.Repeat([]*pb.Endpoint{{}}, maxEndpoints+1)...)), "- steps more than 10000 endpoints")
		has("x a,b")
		if err := c.CloseSend(); err != nil {
			t.Error(err)
		}
		c.ends(codes.OK, "")
		has("x a,b")
	})
}

// An endpoint is equal as a message and as JSON: registering it again in the other form is a renewal.
func TestRegisterIsAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registering(t)
		l := servedInMemory(t, s, ofUnix)
		fields, err := structpb.NewStruct(map[string]any{"n": 1.5, "list": []any{"a", nil, true, map[string]any{}}})
		if err != nil {
			t.Fatal(err)
		}
		e := &pb.Endpoint{
			Id: "i", Address: "2001:DB8::1", Port: 443, Hostname: "h", Locality: &pb.Locality{Region: "r", Zone: "z", SubZone: "s"}, Weight: 3, Priority: 2,
			Health: pb.Endpoint_DRAINING, Metadata: map[string]*structpb.Struct{"envoy.lb": fields, "none": {}},
		}
		call(t, l.ofEndpoints(t)).says(steps1(&pb.Step{Cluster: "x", Group: "edge", Change: &pb.Step_Put{Put: e}}))
		h := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, "") }, DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/api/v1/endpoints/x/i?group=edge", strings.NewReader(`{"address":"2001:db8::1","port":443,"hostname":"h",
			"locality":{"region":"r","zone":"z","sub_zone":"s"},"weight":3,"priority":2,"health":"DRAINING","metadata":{"none":{},"envoy.lb":{"n":1.5,"list":["a",null,true,{}]}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := h.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), `"set":0,"unchanged":1`) {
			t.Errorf("%s", b)
		}
	})
}

// Each request renews the lease, even an empty request. Without requests the stream ends, and its
// endpoints are removed. If the sender ends the stream, its endpoints stay until the lease expires. A
// stream without a lease may be silent for two minutes.
func TestRegisterLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registering(t)
		l := servedInMemory(t, s, ofUnix)
		count := func(want int) {
			t.Helper()
			synctest.Wait()
			if n, _, _ := s.Endpoints.Counts(endpoints.Cluster{Group: "default", Name: "x"}); n != want {
				t.Errorf("%d, want %d", n, want)
			}
		}
		c := call(t, l.ofEndpoints(t))
		c.says(&pb.RegisterRequest{Ttl: durationpb.New(time.Minute), Steps: []*pb.Step{put("x", "10.0.0.1", 80)}})
		for range 5 { // each longer than the write timeout
			time.Sleep(45 * time.Second)
			c.says(&pb.RegisterRequest{Ttl: durationpb.New(time.Minute)})
		}
		count(1)
		time.Sleep(60500 * time.Millisecond)
		count(0)
		if lost := c.says(steps1(put("x", "10.0.0.2", 80))); !lost {
			t.Error("the answer does not report the lost lease")
		}
		count(1)
		begin := time.Now()
		c.ends(codes.DeadlineExceeded, "for too long")
		if since := time.Since(begin); since != 61*time.Second {
			t.Error(since)
		}
		count(0)

		ctx, leave := context.WithCancel(t.Context())
		g, err := l.ofEndpoints(t).Register(ctx)
		if err != nil {
			t.Fatal(err)
		}
		(&calling{t, g, 0}).says(&pb.RegisterRequest{Ttl: durationpb.New(time.Minute), Steps: []*pb.Step{put("x", "10.0.0.1", 80)}})
		leave()
		time.Sleep(50 * time.Second)
		count(1)
		time.Sleep(20 * time.Second)
		count(0)

		c = call(t, l.ofEndpoints(t)) // a silent stream
		begin = time.Now()
		c.ends(codes.DeadlineExceeded, "for too long")
		if since := time.Since(begin); since != quiet {
			t.Error(since)
		}
	})
}

// A local port is not enough to register endpoints, and the server must be configured to accept
// endpoints.
func TestRegisterNeedsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call(t, servedInMemory(t, registering(t), loopback).ofEndpoints(t)).ends(codes.PermissionDenied, "needs a unix socket, a token or a client certificate")
		call(t, servedInMemory(t, newServer(newFleet()), ofUnix).ofEndpoints(t)).ends(codes.PermissionDenied, "takes no endpoints")
		s := registering(t)
		s.Token = func() (string, error) { return "secret", nil }
		l := servedInMemory(t, s, loopback)
		call(t, l.ofEndpoints(t)).ends(codes.Unauthenticated, "token")
		g, err := l.ofEndpoints(t).Register(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret"))
		if err != nil {
			t.Fatal(err)
		}
		(&calling{t, g, 0}).says(steps1(put("x", "10.0.0.1", 80)))
	})
}

// A raw is a message as bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *(v.(*[]byte)), nil }
func (raw) Unmarshal(b []byte, v any) error { *(v.(*[]byte)) = slices.Clone(b); return nil }
func (raw) Name() string                    { return "proto" }

// An unreadable request gets an error. The stream ends only if the begin of the next request is unknown.
func TestRegisterUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registering(t)
		l := servedInMemory(t, s, ofUnix)
		c := call(t, l.ofEndpoints(t))
		c.says(&pb.RegisterRequest{})
		large := put("x", "10.0.0.1", 80)
		large.GetPut().Hostname = strings.Repeat("x", maxRequest)
		if err := c.Send(steps1(large)); err != nil {
			t.Fatal(err)
		}
		c.ends(codes.ResourceExhausted, "request 2 has 1048")
		c = call(t, l.ofEndpoints(t), grpc.UseCompressor(gzip.Name))
		if err := c.Send(steps1(put("x", "10.0.0.1", 80))); err != nil {
			t.Fatal(err)
		}
		c.ends(codes.Unimplemented, "compressed requests")
		for _, ttl := range []*durationpb.Duration{{}, {Seconds: 86401}, {Seconds: -1}, {Seconds: 2, Nanos: -1}, durationpb.New(time.Millisecond)} {
			c = call(t, l.ofEndpoints(t))
			if err := c.Send(&pb.RegisterRequest{Ttl: ttl}); err != nil {
				t.Fatal(err)
			}
			c.ends(codes.InvalidArgument, "ttl: must be 1s to 24h0m0s")
		}
		c = call(t, l.ofEndpoints(t), grpc.ForceCodec(raw{}))
		for i, b := range []string{"", "\xff", "\x12\x03\x0a\x01\xff", strings.Repeat("\x12\x00", 1<<19), "\x7a\x01x"} { // the last request is from a newer version
			if err := c.SendMsg(&[]byte{}); i == 0 && err != nil {
				t.Fatal(err)
			}
			m := []byte(b)
			if err := c.SendMsg(&m); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.CloseSend(); err != nil {
			t.Fatal(err)
		}
		var all []string
		for {
			var b []byte
			if err := c.RecvMsg(&b); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			var r pb.RegisterResponse
			if err := proto.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			for _, one := range r.Refused {
				all = append(all, fmt.Sprint(one.Request, one.Step == nil, " ", one.Message))
			}
		}
		if want := []string{"4 true not a RegisterRequest", "6 true not a RegisterRequest", "8 true has more than 100000 messages"}; !slices.EqualFunc(all, want, strings.HasPrefix) {
			t.Error(strings.Join(all, "\n"))
		}
	})
}

// kept is an engine that blocks until it is released, for a registry with pending changes.
type kept struct {
	endpoints.Engine
	let chan struct{}
}

func (k kept) Write(ctx context.Context, changes []endpoints.Change) error {
	<-k.let
	return k.Engine.Write(ctx, changes)
}

// Requests that are read ahead stay packed in memory, over gRPC and as lines.
func TestReadAheadStaysPacked(t *testing.T) {
	objects := &structpb.ListValue{}
	for range (maxParts - 10) / 2 {
		objects.Values = append(objects.Values, structpb.NewStructValue(&structpb.Struct{}))
	}
	one := put("x", "10.0.0.1", 80)
	one.GetPut().Metadata = map[string]*structpb.Struct{"m": {Fields: map[string]*structpb.Value{"l": structpb.NewListValue(objects)}}}
	large := steps1(one)
	line := `{"cluster":"x","put":{"address":"10.0.0.1","port":80,"metadata":{"m":{"l":[{}` + strings.Repeat(",{}", 5000) + "]}}}}\n"
	synctest.Test(t, func(t *testing.T) {
		engine, err := endpoints.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		let := make(chan struct{})
		l := servedInMemory(t, registeringAt(t, kept{engine, let}), ofUnix)
		heap := func() uint64 {
			synctest.Wait()
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		ctx, cancel := context.WithCancel(t.Context())
		for range 8 {
			g, err := l.ofEndpoints(t).Register(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Send(steps1(put("x", "10.0.0.1", 80))); err != nil {
				t.Fatal(err)
			}
			out, _, end := streamOfLines(t, false, "1m", func(ctx context.Context) (net.Conn, error) { return l.dial(ctx, "") })
			defer end()
			if _, err := io.WriteString(out, `{"cluster":"x","put":{"address":"10.0.0.1","port":80}}`+"\n"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			go func() {
				for g.Send(large) == nil {
				}
			}()
			go func() {
				for {
					if _, err := io.WriteString(out, line); err != nil {
						return
					}
				}
			}()
		}
		if grown := heap() - before; grown > 60<<20 {
			t.Errorf("16 streams take %d MB", grown>>20)
		} else {
			t.Logf("16 streams take %d MB", grown>>20)
		}
		close(let)
		cancel()
	})
}

// A request that would be too large when unpacked is refused before it is unpacked. The largest useful
// request is accepted.
func TestUnpackedSizeIsLimited(t *testing.T) {
	count := func(r *pb.RegisterRequest) int {
		b, err := proto.Marshal(r)
		if err != nil || len(b) > maxRequest {
			t.Fatal(len(b), err)
		}
		return parts(b, ofRequest, 0, 0)
	}
	var all []*pb.Endpoint
	for i := range maxEndpoints {
		all = append(all, &pb.Endpoint{Id: fmt.Sprint(i), Address: "10.0.0.1", Port: 80, Locality: &pb.Locality{Region: "eu-west-1", Zone: "eu-west-1a"},
			Metadata: map[string]*structpb.Struct{"envoy.lb": {Fields: map[string]*structpb.Value{"canary": structpb.NewBoolValue(true)}}}})
	}
	if n := count(steps1(replace("x", all...))); n != 3+6*maxEndpoints-1 {
		t.Error(n)
	}
	var deep *structpb.Value
	for range 1000 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, r := range map[string]*pb.RegisterRequest{
		"steps":     steps1(slices.Repeat([]*pb.Step{{}}, maxParts+1)...),
		"endpoints": steps1(replace("x", slices.Repeat([]*pb.Endpoint{{}}, maxParts)...)),
		"objects": steps1(&pb.Step{Change: &pb.Step_Put{Put: &pb.Endpoint{Metadata: map[string]*structpb.Struct{"m": {Fields: map[string]*structpb.Value{
			"l": structpb.NewListValue(&structpb.ListValue{Values: slices.Repeat([]*structpb.Value{structpb.NewStructValue(&structpb.Struct{})}, maxParts/2)})}}}}}}),
	} {
		if n := count(r); n <= maxParts {
			t.Error(name, n)
		}
	}
	for _, b := range []string{"\xff", "\x12\x05\x0a", "\x12\x02\x1a\x09", "\x13\x13\x14"} { // cut off, or groups
		if n := parts([]byte(b), ofRequest, 0, 0); n > 1 {
			t.Error(n)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := call(t, servedInMemory(t, registering(t), ofUnix).ofEndpoints(t))
		one := put("x", "10.0.0.1", 80)
		one.GetPut().Metadata = map[string]*structpb.Struct{"m": {Fields: map[string]*structpb.Value{"deep": deep}}}
		c.says(&pb.RegisterRequest{})
		c.says(steps1(one), "-  not a RegisterRequest: exceeded")
		c.says(steps1(slices.Repeat([]*pb.Step{{}}, maxParts+1)...), "-  has more than 100000 messages")
		c.says(steps1(put("x", "10.0.0.1", 80)))
	})
}

// The number of streams of both kinds is limited; the end of a stream makes room for another. A sender
// that does not read answers is disconnected after a timeout, without effect on other streams.
func TestRegisterFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registering(t)
		l := servedInMemory(t, s, ofUnix)
		flood := call(t, l.ofEndpoints(t))
		bad := steps1(slices.Repeat([]*pb.Step{put("x", "10.0.0.1", 0)}, maxSteps)...)
		sent, ended := 0, make(chan struct{})
		go func() {
			defer close(ended)
			for flood.Send(bad) == nil {
				sent++
			}
		}()
		begin := time.Now()
		synctest.Wait()
		other := call(t, l.ofEndpoints(t))
		other.says(steps1(put("x", "10.0.0.1", 80)))
		if now := time.Now(); now != begin {
			t.Error(now.Sub(begin))
		}
		<-ended
		if since := time.Since(begin); since != writeTime {
			t.Error(since)
		}
		t.Logf("%d requests were sent", sent)
		flood.ends(codes.Internal, "")
		synctest.Wait()

		clients := []*calling{other}
		for range maxReaders - 1 {
			c := call(t, l.ofEndpoints(t))
			c.says(&pb.RegisterRequest{})
			clients = append(clients, c)
		}
		call(t, l.ofEndpoints(t)).ends(codes.ResourceExhausted, "32 at most")
		if err := clients[3].CloseSend(); err != nil {
			t.Fatal(err)
		}
		clients[3].ends(codes.OK, "")
		synctest.Wait()
		call(t, l.ofEndpoints(t)).says(&pb.RegisterRequest{})
	})
}

// A stream of lines may have many bytes and last long. It may also replace and release whole clusters.
func TestLongEndpointStream(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := registering(t)
				l := servedInMemory(t, s, ofUnix)
				out, in, end := streamOfLines(t, h2, "1m", func(ctx context.Context) (net.Conn, error) { return l.dial(ctx, "") })
				defer end()
				line := func(last int, want string) {
					t.Helper()
					for {
						got, err := in.ReadString('\n')
						if err != nil {
							t.Fatal(err)
						}
						if strings.Contains(got, "errors") != (want != "") || !strings.Contains(got, want) {
							t.Errorf("%s, want %s", got, want)
						}
						if strings.HasPrefix(got, fmt.Sprintf(`{"line":%d`, last)) {
							return
						}
					}
				}
				send := func(text string) {
					t.Helper()
					if _, err := io.WriteString(out, text); err != nil {
						t.Fatal(err)
					}
				}
				send(`{"cluster":"x","replace":[{"address":"10.0.0.1","port":80},{"address":"10.0.0.2","port":80}]}` + "\n" + `{"cluster":"y","replace":[]}` + "\n")
				line(2, "")
				if got := registrations(s); got != "x 10.0.0.1:80,10.0.0.2:80; y " {
					t.Error(got)
				}
				send(`{"cluster":"x","replace":[{"address":"10.0.0.1"}]}` + "\n")
				line(3, `"field":"endpoints[0].port"`)
				send(`{"cluster":"x","release":true,"remove":"a"}` + "\n")
				line(4, "must have exactly one of put, remove, replace and release")
				send(`{"cluster":"z","replace":[{"address":"10.0.0.1","port":1},{"address":"10.0.0.2","port":"1"},{"address":"ten","port":1}]}` + "\n")
				line(5, `"errors":[{"line":5,"field":"endpoints[1].port","message":"must be of another type, not a JSON string"},{"line":5,"field":"endpoints[2].address"`)
				send(`{"cluster":"z","release":true}` + "\n")
				line(6, "")
				send(`{"cluster":"x","release":true}` + "\n")
				line(7, "")
				if got := registrations(s); got != "y " {
					t.Error(got)
				}
				for n := range 5 {
					time.Sleep(45 * time.Second)
					send("\n")
					line(8+n, "")
				}
				send(" ")
				for n := range 20 {
					time.Sleep(30 * time.Second)
					send("\n ")
					line(13+n, "")
				}
				_ = out.Close()
				if rest, err := io.ReadAll(in); err != nil {
					t.Errorf("%s %v", rest, err)
				}
			})
		})
	}
}

// The status has the fault of a sender that cannot update its endpoints, until the sender revokes it, or its stream ends.
func TestStatusOfStaleEndpoints(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := registering(t)
			s.Tracker = healthyFleet{newFleet()}
			l := servedInMemory(t, s, ofUnix)
			dial := func(ctx context.Context) (net.Conn, error) { return l.dial(ctx, "") }
			out, in, end := streamOfLines(t, false, "1h", dial)
			defer end()
			defer out.Close()
			other, otherIn, otherEnd := streamOfLines(t, false, "1h", dial)
			send := func(out io.Writer, in *bufio.Reader, line string) {
				t.Helper()
				if _, err := io.WriteString(out, line+"\n"); err != nil {
					t.Fatal(err)
				}
				if got, err := in.ReadString('\n'); err != nil || strings.Contains(got, "errors") {
					t.Fatal(got, err)
				}
			}
			began := time.Now()
			is := func(since time.Duration, want ...string) {
				t.Helper()
				synctest.Wait()
				st := s.statusNow(t.Context(), clients.Filter{})
				if len(st.Troubles) != len(want) || *st.Healthy != (want == nil) {
					t.Fatalf("%+v", st)
				}
				for i, x := range st.Troubles {
					if x.Code != api.StaleEndpoints || x.Text != want[i] || i == 0 && x.Since != began.Add(since) {
						t.Errorf("%+v, want %q", x, want[i])
					}
				}
			}
			is(0)
			send(out, in, `{"fault":"a is away"}`)
			is(0, "a is away")
			time.Sleep(time.Second)
			send(other, otherIn, `{"fault":"b"}`)
			send(out, in, `{"cluster":"x","put":{"address":"10.0.0.1","port":80}}`)
			send(out, in, `{"fault":"a answers 401"}`)
			is(0, "a answers 401", "b")
			send(out, in, `{"fault":""}`)
			is(time.Second, "b")
			send(out, in, `{"fault":"a"}`)
			_ = other.Close()
			otherEnd()
			is(time.Second, "a")
			if got := registrations(s); got != "x 10.0.0.1:80" {
				t.Error(got)
			}
		})
	})
}

// faulty is an engine with a fault.
type faulty struct {
	endpoints.Engine
	all []faults.Fault
}

func (f *faulty) Faults() []faults.Fault { return f.all }

// The status has the faults of the storage of endpoints.
func TestStatusOfFaultyEndpointStorage(t *testing.T) {
	t.Run("SAFE-15 SAFE-17", func(t *testing.T) {
		f := &faulty{}
		s := registering(t)
		s.Tracker = healthyFleet{newFleet()}
		s.Endpoints = endpoints.New(f, store.New(store.WithOverlays()), endpoints.Options{})
		if st := s.statusNow(t.Context(), clients.Filter{}); len(st.Troubles) != 0 || !*st.Healthy {
			t.Errorf("%+v", st)
		}
		f.all = []faults.Fault{{Text: "the disk is full", Since: time.Unix(1, 0)}}
		want := api.Trouble{Code: api.StaleEndpoints, Since: f.all[0].Since, Text: f.all[0].Text}
		if st := s.statusNow(t.Context(), clients.Filter{}); len(st.Troubles) != 1 || st.Troubles[0] != want || *st.Healthy {
			t.Errorf("%+v", st)
		}
	})
}

// distant is an engine with slow writes.
type distant struct{ endpoints.Engine }

func (d distant) Write(ctx context.Context, changes []endpoints.Change) error {
	time.Sleep(2 * time.Millisecond)
	return d.Engine.Write(ctx, changes)
}

// A sender that waits for each answer gets it without delay. Fast lines are applied together, even if the
// engine is fast.
func TestEndpointLinesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := endpoints.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		l := servedInMemory(t, registeringAt(t, distant{engine}), ofUnix)
		out, in, end := streamOfLines(t, false, "1m", func(ctx context.Context) (net.Conn, error) { return l.dial(ctx, "") })
		defer end()
		send := func(n int) {
			t.Helper()
			if _, err := fmt.Fprintf(out, `{"cluster":"x","put":{"id":"a","address":"10.0.0.1","port":%d}}`+"\n", n); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for n := range 20 {
			send(n + 1)
			if _, err := in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 20*2*time.Millisecond {
			t.Errorf("20 lines, each after the answer to the one before, take %v", took)
		}
		const many = 2000
		go func() {
			for n := range many {
				send(n + 1)
				time.Sleep(200 * time.Microsecond)
			}
		}()
		answers := 0
		for began = time.Now(); ; {
			answer, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if answers++; strings.HasPrefix(answer, fmt.Sprintf(`{"line":%d`, 20+many)) {
				break
			}
		}
		if took := time.Since(began); took > 420*time.Millisecond || answers > 45 {
			t.Errorf("%d lines that come in 400 ms are done after %v, with %d answers", many, took, answers)
		}
		_ = out.Close()
	})
}

// ending is an engine that reports all leases as ended.
type ending struct {
	*endpoints.Local
	ids chan []endpoints.LeaseID
}

func (e ending) Revoke(_ context.Context, ids []endpoints.LeaseID) { e.ids <- ids }

// A stream without endpoints has no lease; removing all endpoints ends the lease.
func TestLeaseEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := endpoints.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		e := ending{engine, make(chan []endpoints.LeaseID, 10)}
		l := servedInMemory(t, registeringAt(t, e), ofUnix)
		for _, steps := range [][]*pb.Step{nil, {put("x", "10.0.0.1", 80), {Cluster: "x", Change: &pb.Step_Remove{Remove: "10.0.0.1:80"}}}} {
			c := call(t, l.ofEndpoints(t))
			c.says(&pb.RegisterRequest{Ttl: durationpb.New(endpoints.MaxTTL), Steps: steps})
			if len(e.ids) != 0 {
				t.Error("the lease ends before the stream")
			}
			if err := c.CloseSend(); err != nil {
				t.Fatal(err)
			}
			c.ends(codes.OK, "")
			synctest.Wait()
			if want := len(steps) / 2; len(e.ids) != want {
				t.Errorf("%d leases were ended, want %d", len(e.ids), want)
			}
		}
	})
}
