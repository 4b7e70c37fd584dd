package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/limit/inbound"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// Each line of the log has all its attributes (SAFE-6): an operator finds the client, the type and the limit.
func TestAttributesOfLogLines(t *testing.T) {
	from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}
	node := &xds.Node{ID: "n", Cluster: "c", UserAgentName: "envoy", UserAgentVersion: "1.30"}
	st := &Stream{ID: 5, Node: node, Peer: from, Type: xds.Cluster}
	e := protocol.Event{
		Type: xds.Cluster, By: xds.Route, Name: "x", Names: []string{"x"}, Version: "v", InUse: "u", Nonce: "o",
		Took: 2 * time.Millisecond, Error: &xds.Status{Code: 3, Message: "bad"},
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: from})
	limit := limitError(tooLarge, limitRequest, codes.ResourceExhausted, "too large")
	for name, c := range map[string]struct {
		do   func(s *Server)
		want []string
	}{
		"NACK": {func(s *Server) { s.logNack(st, e, "bad", func() string { return "bad" }) },
			[]string{`WARN "client refused a response (NACK)" node=n type=CDS resources=[x] at=[] version=v in_use=u nonce=o stream=5 code=3 error=bad`}},
		"no answer": {func(s *Server) { s.logWaived(st, e) },
			[]string{`WARN "client did not answer: changes that waited for it are sent now" node=n unanswered=RDS type=CDS name=x stream=5`}},
		"waits": {func(s *Server) { s.logWaits(st); s.logWaits(st) },
			[]string{`WARN "client waits: nothing is configured for its node yet" node=n stream=5`, `DEBUG "client waits: nothing is configured for its node yet" node=n stream=5`}},
		"queue": {func(s *Server) { s.logQueues(); s.logQueues() }, []string{
			`INFO "many clients connect at once: they get their first responses in turn" at_once=50 limit=first_answers`,
			`DEBUG "many clients connect at once: they get their first responses in turn" at_once=50 limit=first_answers`,
		}},
		"recovered": {func(s *Server) { s.logRecovered(st, e) },
			[]string{`INFO "client no longer refuses a type" node=n type=CDS version=v after=2ms stream=5`}},
		"ACK": {func(s *Server) { s.logAck(st, e) }, []string{`DEBUG "client accepted a response" node=n type=CDS version=v took=2ms stream=5`}},
		"connected and left": {func(s *Server) {
			st.Since = time.Now()
			s.logConnected(st)
			s.logLeft(st, status.Error(codes.Aborted, "why"))
		}, []string{
			`INFO "client connected" node=n cluster=c peer=10.0.0.1:7 agent="envoy 1.30" api=CDS variant=sotw stream=5`,
			`INFO "client left" node=n peer=10.0.0.1:7 after=0s code=Aborted why=why stream=5`,
		}},
		"rejection": {func(s *Server) { s.logRejection(ctx, st, limit) },
			[]string{`WARN "stream closed: client exceeded a limit or sent a malformed request" stream=5 peer=10.0.0.1:7 node=n code=ResourceExhausted error="too large" limit=request`}},
		"rejection without a node": {func(s *Server) {
			s.logPollRejection(context.Background(), &Stream{ID: 5}, reject(malformed, codes.InvalidArgument, "bad"))
		},
			[]string{`WARN "poll ended: client exceeded a limit or sent a malformed request" stream=5 code=InvalidArgument error=bad`}},
		"refused by the source": {func(s *Server) { s.logRejection(ctx, st, deny(errors.New("no"))) },
			[]string{`WARN "client refused: its node may see nothing" stream=5 peer=10.0.0.1:7 node=n code=PermissionDenied error=no`}},
		"logged by the source": {func(s *Server) {
			s.logRejection(ctx, st, &rejection{fault: denied, logged: true, Status: status.New(codes.PermissionDenied, "no")})
		}, []string{`DEBUG "client refused: its node may see nothing" stream=5 code=PermissionDenied error=no`}},
		"another error": {func(s *Server) { s.logRejection(ctx, st, errors.New("gone")) }, nil},
		"no seat": {func(s *Server) { s.logNoSeat(ctx, limit) },
			[]string{`WARN "stream closed: client exceeded a limit or sent a malformed request" code=ResourceExhausted error="too large" limit=request peer=10.0.0.1:7`}},
		"no seat, no peer": {func(s *Server) { s.logNoSeat(context.Background(), limit) },
			[]string{`WARN "stream closed: client exceeded a limit or sent a malformed request" code=ResourceExhausted error="too large" limit=request`}},
		"rate of an address": {func(s *Server) { s.logAddressRate(from) },
			[]string{`WARN "an address sends requests too fast: they wait" peer=10.0.0.1:7 per_second=100000 limit=address_rate`}},
		"rate of an unknown address": {func(s *Server) { s.logAddressRate(nil) },
			[]string{`WARN "an address sends requests too fast: they wait" peer=unknown per_second=100000 limit=address_rate`}},
		"rate of streams": {func(s *Server) { s.logStreamRate(from) },
			[]string{`WARN "client opens and ends streams too fast: its connection waits" peer=10.0.0.1:7 per_second=300 limit=stream_rate`}},
		"slow connection": {func(s *Server) { s.logClosedConnection(from, inbound.TooSlow) },
			[]string{`WARN "connection closed: unfinished requests exceed a limit" peer=10.0.0.1:7 error="` + string(inbound.TooSlow) + `" limit=read`}},
		"another node id": {func(s *Server) {
			own := &stream{server: s, info: *st}
			own.nodeChange(&xds.Node{ID: "m"})
			own.nodeChange(&xds.Node{ID: "m"})
		}, []string{`WARN "client changed its node id on a stream: ignored" node=n now=m stream=5`}},
		"panic": {func(s *Server) { s.panicked(st, &panics.Panic{Value: "boom", Stack: "here"}) },
			[]string{`ERROR panic in=stream value=boom stack=here stream=5 node=n`}},
		"panic without a node": {func(s *Server) { s.panicked(&Stream{ID: 5}, &panics.Panic{Value: "boom", Stack: "here"}) },
			[]string{`ERROR panic in=stream value=boom stack=here stream=5`}},
		"panic of a connection": {func(s *Server) { s.logBrokenConnection(from, &panics.Panic{Value: "boom", Stack: "here"}) },
			[]string{`ERROR panic in=connection value=boom stack=here peer=10.0.0.1:7`}},
		"a large response": {func(s *Server) {
			for range 2 {
				s.encode(xds.SotW, &xds.Response{Type: xds.Cluster, Changes: &xds.Changes{Upserts: []*xds.Resource{res("a", strings.Repeat("x", xds.GRPCMessageSize))}}}).data.Free()
			}
		}, []string{`WARN "a response is larger than gRPC clients accept by default: raise their limit, or split the configuration" type=CDS bytes=N resources=1 errors=0 default=4194304`}},
	} {
		within(t, name, func(t *testing.T) {
			var book logbook
			c.do(New(newSource(), book.at(slog.LevelDebug)))
			synctest.Wait()
			got := regexp.MustCompile(`(?m)^time=\S+ level=(\S+) msg=`).ReplaceAllString(book.String(), "$1 ")
			got = regexp.MustCompile(` bytes=\d+`).ReplaceAllString(got, " bytes=N")
			want := strings.Join(c.want, "\n")
			if strings.TrimSpace(got) != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A line that reports left-out lines names the nodes if there are several.
func TestRepeatedNamesSeveralNodes(t *testing.T) {
	for want, by := range map[string][]string{
		"[repeated=3]":             {"a\x00host", "\x00host"},
		"[repeated=3 nodes=[a b]]": {"a\x00host", "\x00host", "b\x00host"},
	} {
		if got := attrText(repeated(3, by)); got != want {
			t.Errorf("%q: %s", by, got)
		}
	}
}

func attrText(attrs []slog.Attr) string {
	var all []string
	for _, a := range attrs {
		all = append(all, a.String())
	}
	return "[" + strings.Join(all, " ") + "]"
}

// The values of a dump are removed, except names of resources and types.
func TestDumpsKeepNamesAndTypes(t *testing.T) {
	for text, want := range map[string]string{
		`name: "a" type_url: "b" "@type": "c" inline_string: "d"`: `name: "a" type_url: "b" "@type": "c" inline_string: "…"`,
	} {
		if got := withoutValues(text); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := afterDump("\n: the cause"); got != ": the cause" {
		t.Error(got)
	}
}
