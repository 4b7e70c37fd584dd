package csds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/chancery-xds/chancery/xds"
)

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		t.Fatal(err)
	}
	return a
}

// expected has the expected answers for an edge.
func expected(t testing.TB, id string) *statusv3.ClientConfig {
	md, err := structpb.NewStruct(map[string]any{"team": "a"})
	if err != nil {
		t.Fatal(err)
	}
	of := func(typ *xds.Type, m proto.Message, shown proto.Message, is statusv3.ConfigStatus, client adminv3.ClientResourceStatus) *statusv3.ClientConfig_GenericXdsConfig {
		r := resource(t, typ, m)
		return &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: typ.URL, Name: r.Name, VersionInfo: r.Version, XdsConfig: packed(t, shown), ConfigStatus: is, ClientStatus: client,
		}
	}
	refused := of(xds.Cluster, broken, broken, statusv3.ConfigStatus_ERROR, adminv3.ClientResourceStatus_NACKED)
	refused.ErrorState = &adminv3.UpdateFailureState{
		FailedConfiguration: packed(t, broken), LastUpdateAttempt: timestamppb.New(began), Details: "no such thing", VersionInfo: refused.VersionInfo,
	}
	sent := of(xds.Listener, late, late, statusv3.ConfigStatus_STALE, adminv3.ClientResourceStatus_REQUESTED)
	sent.LastUpdated = timestamppb.New(began)
	absent := func(typ *xds.Type, name string) *statusv3.ClientConfig_GenericXdsConfig {
		return &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: typ.URL, Name: name, ConfigStatus: statusv3.ConfigStatus_SYNCED, ClientStatus: adminv3.ClientResourceStatus_DOES_NOT_EXIST,
		}
	}
	const synced, acked = statusv3.ConfigStatus_SYNCED, adminv3.ClientResourceStatus_ACKED
	return &statusv3.ClientConfig{
		Node: &corev3.Node{
			Id: id, Cluster: "edges", UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.40.0"},
			Locality: &corev3.Locality{Region: "r", Zone: "z"}, ClientFeatures: []string{"f"}, Metadata: md,
		},
		GenericXdsConfigs: []*statusv3.ClientConfig_GenericXdsConfig{
			of(xds.Cluster, cluster, cluster, synced, acked), refused,
			of(xds.Endpoint, eds, eds, synced, acked), absent(xds.Endpoint, "nowhere"),
			of(xds.Secret, cert, shown, synced, acked), absent(xds.Secret, "none"),
			of(xds.ExtensionConfig, filter, filter, statusv3.ConfigStatus_NOT_SENT, acked),
			of(xds.Listener, listener, listener, synced, acked), sent,
			{TypeUrl: xds.Listener.URL, Name: "old", VersionInfo: "7", ConfigStatus: statusv3.ConfigStatus_NOT_SENT, ClientStatus: acked},
			of(xds.ScopedRoute, scope, scope, statusv3.ConfigStatus_UNKNOWN, adminv3.ClientResourceStatus_UNKNOWN),
			of(xds.Route, route, route, statusv3.ConfigStatus_NOT_SENT, adminv3.ClientResourceStatus_REQUESTED),
		},
	}
}

func same(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", prototext.Format(got), prototext.Format(want))
	}
}

// Messages built from descriptors equal those of generated code.
func TestFetchAndStream(t *testing.T) {
	client := dial(t, serve(t, service(edge(t, "one"), edge(t, "two")), plain))
	got, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, &statusv3.ClientStatusResponse{Config: []*statusv3.ClientConfig{expected(t, "one"), expected(t, "two")}})
	if b, _ := proto.Marshal(got); strings.Contains(string(b), "canary") {
		t.Error("the private key is shown")
	}

	stream, err := client.StreamClientStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"two", "none", "one"} {
		one := &statusv3.ClientStatusRequest{ExcludeResourceContents: true, NodeMatchers: []*matcherv3.NodeMatcher{
			{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: id}}}}}
		if err := stream.Send(one); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want := &statusv3.ClientStatusResponse{}
		if id != "none" {
			c := expected(t, id)
			for _, x := range c.GenericXdsConfigs {
				x.XdsConfig = nil
				if x.ErrorState != nil {
					x.ErrorState.FailedConfiguration = nil
				}
			}
			want.Config = append(want.Config, c)
		}
		same(t, got, want)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || err.Error() != "EOF" {
		t.Error(err)
	}
}

func TestWrongRequests(t *testing.T) {
	s := service(edge(t, "one"))
	s.o.MaxBytes = 100
	client := dial(t, serve(t, s, plain))
	for name, tt := range map[string]struct {
		request *statusv3.ClientStatusRequest
		code    codes.Code
		text    string
	}{
		"a matcher of nothing": {&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{}}}},
			codes.InvalidArgument, "node_matchers[0].node_id: match_pattern must be set"},
		"more than a request may have": {&statusv3.ClientStatusRequest{Node: &corev3.Node{Id: strings.Repeat("x", maxRequest)}},
			codes.ResourceExhausted, "received message larger than max"},
		"more than an answer may have": {&statusv3.ClientStatusRequest{}, codes.ResourceExhausted, "ask for fewer clients (node_matchers), or set exclude_resource_contents"},
	} {
		_, err := client.FetchClientStatus(t.Context(), tt.request)
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client whose stream is stuck is listed without resources. A panic in one client does not end the
// server.
func TestStuckStream(t *testing.T) {
	stuck := edge(t, "stuck")
	stuck.Config = func(ctx context.Context) ([]TypeConfig, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	gone := edge(t, "gone")
	gone.Config = func(context.Context) ([]TypeConfig, error) { return nil, errors.New("it has left") }
	client := dial(t, serve(t, service(stuck, gone, edge(t, "one")), plain))
	got, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Config) != 3 || len(got.Config[0].GenericXdsConfigs)+len(got.Config[1].GenericXdsConfigs) != 0 || got.Config[0].Node.Id != "stuck" {
		t.Error(prototext.Format(got))
	}
	same(t, got.Config[2], expected(t, "one"))

	odd := edge(t, "odd")
	odd.Config = func(context.Context) ([]TypeConfig, error) { panic("oh") }
	client = dial(t, serve(t, service(odd), plain))
	for range 3 {
		if _, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{}); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "oh") {
			t.Error(err)
		}
	}
}

// Stuck streams delay an answer for a limited time, even if there are many.
func TestManyStuckStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, begin := 0, time.Now()
		stuck := Client{Config: func(ctx context.Context) ([]TypeConfig, error) {
			asked++
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		a := answer{}
		for range 100 {
			a.ask(t.Context(), &stuck)
		}
		if took := time.Since(begin); asked != int(stuckBudget/clientTimeout) || took != stuckBudget {
			t.Errorf("%d were asked, in %v", asked, took)
		}
	})
}

// A caller that disconnects during an answer leaves no goroutine behind.
func TestRequesterDisconnects(t *testing.T) {
	asked, left := make(chan bool, 1), make(chan bool, 1)
	slow := edge(t, "slow")
	slow.Config = func(ctx context.Context) ([]TypeConfig, error) {
		asked <- true
		<-ctx.Done()
		left <- true
		return nil, ctx.Err()
	}
	s := service(slow)
	client := dial(t, serve(t, s, plain))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := client.FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
		done <- err
	}()
	<-asked
	begin := time.Now()
	cancel()
	<-left
	if err := <-done; status.Code(err) != codes.Canceled || time.Since(begin) > clientTimeout/2 {
		t.Error(err, time.Since(begin))
	}
}

func TestCallsAreCounted(t *testing.T) {
	client := dial(t, serve(t, service(edge(t, "one")), plain))
	var open []grpc.BidiStreamingClient[statusv3.ClientStatusRequest, statusv3.ClientStatusResponse]
	for range maxCalls {
		stream, err := client.StreamClientStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&statusv3.ClientStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		open = append(open, stream)
	}
	if _, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if err := open[0].CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := open[0].Recv(); err == nil {
		t.Error("the stream does not end")
	}
	for try := 0; ; try++ { // the slot is free when the handler has returned
		_, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
		if err == nil {
			break
		}
		if try > 1000 {
			t.Fatal(err)
		}
	}
}

// fleet has n clients with the same 60 resources each.
func fleet(t testing.TB, n int) []Client {
	var some []Resource
	for i := range 60 {
		c := proto.CloneOf(cluster)
		c.Name = fmt.Sprint("cluster-", i)
		c.AltStatName = strings.Repeat("x", 300)
		r := resource(t, xds.Cluster, c)
		some = append(some, Resource{Name: r.Name, State: Synced, Has: true, Body: r})
	}
	all := make([]Client, n)
	for i := range all {
		all[i] = Client{Node: &xds.Node{ID: fmt.Sprint("edge-", i)}, Config: func(context.Context) ([]TypeConfig, error) {
			return []TypeConfig{{xds.Cluster, "v", some}}, nil
		}}
	}
	return all
}

// A thousand clients fit in one answer, which is larger than the default limit of gRPC.
func TestThousandClients(t *testing.T) {
	s := service(fleet(t, 1000)...)
	at := serve(t, s, plain)
	begin := time.Now()
	got, err := dial(t, at, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBytes+1<<20))).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	t.Logf("%d clients, %.1f MB, %v", len(got.Config), float64(proto.Size(got))/1e6, took)
	if len(got.Config) != 1000 || len(got.Config[999].GenericXdsConfigs) != 60 || took > 20*time.Second {
		t.Error(len(got.Config), took)
	}
	_, err = dial(t, at).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "4194304") {
		t.Error(err)
	}
	begin = time.Now()
	got, err = dial(t, at).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{
		{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "edge-[0-9]"}}}}}})
	if err != nil || len(got.Config) != 10 {
		t.Error(err, len(got.GetConfig()))
	}
	t.Logf("10 of them: %v", time.Since(begin))
}

func BenchmarkThousandClients(b *testing.B) {
	s := service(fleet(b, 1000)...)
	r := request(b, "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.answer(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// At most two large answers are in memory at the same time, even if callers do not read.
func TestLargeAnswersTakeTurns(t *testing.T) {
	asked := make(chan bool, 8)
	all := fleet(t, 200)
	first := all[0].Config
	all[0].Config = func(ctx context.Context) ([]TypeConfig, error) { asked <- true; return first(ctx) }
	at := serve(t, service(all...), plain)
	for range 2 { // streams with a small window that read nothing
		stream, err := dial(t, at, grpc.WithInitialWindowSize(1<<16), grpc.WithStaticStreamWindowSize(1<<16)).StreamClientStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&statusv3.ClientStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		<-asked
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := dial(t, at).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	select {
	case <-asked:
		t.Error("the server builds a third answer")
	default:
	}
}

// Clients that got the same resource at different times have different values of last_updated.
func TestLastUpdatedPerClient(t *testing.T) {
	r := resource(t, xds.Cluster, cluster)
	sent := func(node string, at time.Time) Client {
		return Client{Node: &xds.Node{ID: node}, Config: func(context.Context) ([]TypeConfig, error) {
			return []TypeConfig{{Type: xds.Cluster, Resources: []Resource{{Name: r.Name, State: Sent, Body: r, Updated: at}}}}, nil
		}}
	}
	s := New(Options{Clients: func() []Client { return []Client{sent("one", began), sent("two", began.Add(time.Hour))} }})
	got, err := dial(t, serve(t, s, plain)).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Time{began, began.Add(time.Hour)} {
		if at := got.Config[i].GenericXdsConfigs[0].LastUpdated.AsTime(); !at.Equal(want) {
			t.Errorf("%s: %v, not %v", got.Config[i].Node.Id, at, want)
		}
	}
}
