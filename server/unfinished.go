package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/limit/inbound"
	"github.com/chancery-xds/chancery/internal/panics"
)

// Credentials wraps transport credentials for a grpc.Server (grpc.Creds). Pass your own
// credentials, or nil for plain text. The connections then enforce [Limits.Unfinished] and
// [Limits.StreamRate]. Without these credentials the server has neither limit, because gRPC grants
// each request any window that the client asks for, and starts every stream that the client opens.
func (s *Server) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	if c == nil {
		c = insecure.NewCredentials()
	}
	return counting{c, s}
}

// counting are credentials whose connections enforce limits.
type counting struct {
	credentials.TransportCredentials
	server *Server
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c counting) ServerHandshake(raw net.Conn) (conn net.Conn, auth credentials.AuthInfo, err error) {
	if p := panics.Do(func() { conn, auth, err = c.TransportCredentials.ServerHandshake(raw) }); p != nil {
		c.server.logBrokenConnection(raw.RemoteAddr(), p)
		return nil, nil, errInternal
	}
	if err != nil {
		return nil, nil, err
	}
	return c.server.unfinished.Conn(conn, conn == raw), auth, nil
}

// Clone implements [credentials.TransportCredentials].
func (c counting) Clone() credentials.TransportCredentials {
	return counting{c.TransportCredentials.Clone(), c.server}
}

// logClosedConnection counts and logs a connection that was closed because of a limit.
func (s *Server) logClosedConnection(peer net.Addr, why inbound.Reason) {
	s.tally[tooManyUnfinished].Add(1)
	limit := limitNames[tooManyUnfinished]
	if why == inbound.TooSlow {
		limit = limitRead
	}
	s.warn(&Stream{Peer: peer}, string(why), "connection closed: unfinished requests exceed a limit", []slog.Attr{slog.String("peer", peer.String()), slog.String("error", string(why)), limitAttr(limit)})
}

// logStreamRate counts and logs a connection whose streams open and end too fast.
func (s *Server) logStreamRate(peer net.Addr) {
	const line = "client opens and ends streams too fast: its connection waits"
	s.tally[tooManyEnds].Add(1)
	s.warn(&Stream{Peer: peer}, line, line, []slog.Attr{slog.String("peer", peer.String()), slog.Int("per_second", s.bounds.StreamRate), limitAttr(limitNames[tooManyEnds])})
}

// largeRequest is the size in bytes from which a complete request counts against Limits.Unfinished, until it is handled.
const largeRequest = unreadWindow

// countWhole adds the size of a complete request, or removes it if n is negative.
func (s *Server) countWhole(n int) {
	if n > largeRequest || -n > largeRequest {
		s.unfinished.Whole(n)
	}
}

// requestProgress returns a number that grows while a request arrives on a stream, or 0 if no
// request is arriving.
func (s *Server) requestProgress(ctx context.Context) int {
	if p, ok := peer.FromContext(ctx); ok {
		return s.unfinished.Progress(p.Addr, numberOf(ctx))
	}
	return 0
}

// numberOf returns the HTTP/2 stream number of a call, or 0 if it is unknown. It reads an unexported field of gRPC. Without
// the number, the timeout of a first request is not extended.
func numberOf(ctx context.Context) uint32 {
	st := reflect.Indirect(reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx)))
	if st.Kind() != reflect.Struct {
		return 0
	}
	if id := st.FieldByName("id"); id.IsValid() && id.CanUint() {
		return uint32(id.Uint())
	}
	return 0
}

// Body wraps the body of an HTTP request, such as a poll over REST. Bytes above 64 KiB count
// against [Limits.Unfinished] until the body is closed. A read waits for memory. Before 64 KiB or
// the end of the body, it also waits for the rate of the address ([Limits.AddressRate]). The waits
// end when ctx is done, which should be the context of the request. If no memory is free, or if the
// body arrives too slowly ([WithReadTimeout]), a read returns an error with the gRPC status
// UNAVAILABLE. Before that, Body calls the function stop, from any goroutine. This function must
// make reads of r fail.
func (s *Server) Body(ctx context.Context, r io.Reader, peer net.Addr, stop func()) io.ReadCloser {
	if peer == nil {
		peer = &net.UnixAddr{Net: "unix"}
	}
	return &queuedBody{ReadCloser: body{s.unfinished.Body(r, peer, stop)}, server: s, ctx: ctx, peer: peer, early: largeRequest}
}

type body struct{ *inbound.Body }

// Read implements [io.Reader].
func (b body) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	if errors.Is(err, inbound.ErrRefused) {
		err = errNoRoom
	}
	return n, err
}

// errNoRoom is the error for a poll whose body was refused. The refusal was counted before.
var errNoRoom = status.Error(codes.Unavailable, "limit exceeded: the request arrived too slowly, or there was no room for it: try again later")
