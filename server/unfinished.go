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

// Credentials returns the transport credentials that a grpc.Server should have
// (grpc.Creds): those given, nil for plain text, on connections whose requests that are not
// whole count against [Limits.Unfinished], and whose streams come and go at
// [Limits.StreamRate]. Without them nothing bounds either, for gRPC gives each request all
// the window it asks for, and starts each stream that is opened.
func (s *Server) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	if c == nil {
		c = insecure.NewCredentials()
	}
	return counting{c, s}
}

// counting are credentials with connections that count.
type counting struct {
	credentials.TransportCredentials
	server *Server
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c counting) ServerHandshake(raw net.Conn) (conn net.Conn, auth credentials.AuthInfo, err error) {
	if p := panics.Do(func() { conn, auth, err = c.TransportCredentials.ServerHandshake(raw) }); p != nil {
		c.server.broken(raw.RemoteAddr(), p)
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

// cut is told that a connection was closed.
func (s *Server) cut(peer net.Addr, why inbound.Reason) {
	s.tally[tooUnfinished].Add(1)
	limit := limits[tooUnfinished]
	if why == inbound.TooSlow {
		limit = limitRead
	}
	s.warn(&Stream{Peer: peer}, string(why), "connection closed: unfinished requests exceed a limit", []slog.Attr{slog.String("peer", peer.String()), slog.String("error", string(why)), limitAttr(limit)})
}

// hasty is told of a connection whose streams come and go too fast.
func (s *Server) hasty(peer net.Addr) {
	const line = "client opens and ends streams too fast: its connection waits"
	s.tally[tooHasty].Add(1)
	s.warn(&Stream{Peer: peer}, line, line, []slog.Attr{slog.String("peer", peer.String()), slog.Int("per_second", s.bounds.StreamRate), limitAttr(limits[tooHasty])})
}

// largeRequest is from how many bytes on a request that is whole counts against
// Limits.Unfinished until it is handled.
const largeRequest = unreadWindow

// kept notes a request that is whole, or that it is so no more.
func (s *Server) kept(n int) {
	if n > largeRequest || -n > largeRequest {
		s.unfinished.Whole(n)
	}
}

// coming is a number that grows while a request comes on a stream; 0: none does.
func (s *Server) coming(ctx context.Context) int {
	if p, ok := peer.FromContext(ctx); ok {
		return s.unfinished.Progress(p.Addr, numberOf(ctx))
	}
	return 0
}

// numberOf is the number that a call's stream has in HTTP/2; 0: it is not known. gRPC has
// it in a field and tells nobody; without it no first request is waited for.
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

// Body returns the body of a request over HTTP, such as a poll's, whose client is at an
// address. What of it is beyond 64 KiB counts against [Limits.Unfinished] until it is closed:
// who reads it waits for room, and before that, or before its end, until it is due
// ([Limits.AddressRate]), or ctx is done, which should be the request's. An error of reading is
// UNAVAILABLE, as one of gRPC's status, if it found none or came too slowly
// ([WithReadTimeout]); stop, which must make reads of r fail, has been called then, by any
// goroutine.
func (s *Server) Body(ctx context.Context, r io.Reader, peer net.Addr, stop func()) io.ReadCloser {
	if peer == nil {
		peer = &net.UnixAddr{Net: "unix"}
	}
	return &queued{ReadCloser: body{s.unfinished.Body(r, peer, stop)}, server: s, ctx: ctx, peer: peer, early: largeRequest}
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

// errNoRoom is what a poll is told whose body was refused. That is counted already.
var errNoRoom = status.Error(codes.Unavailable, "limit exceeded: the request arrived too slowly, or there was no room for it: try again later")
