package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/panics"
)

// errInternal is the error for the client of a stream that panicked. The panic itself is in the log.
var errInternal = status.Error(codes.Internal, "internal error")

// guarded calls f for a stream. A panic in f ends only this stream. The panic may come from the
// server, or from the program's source, observer, identifier or logger.
func (s *Server) guarded(st *Stream, f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		s.panicked(st, p)
		return errInternal
	}
	return err
}

// panicked logs a panic. A client that reconnects may cause the same panic again and again, so
// equal panics within 10 s make only one more line with a count.
func (s *Server) panicked(st *Stream, p *panics.Panic) {
	attrs := []slog.Attr{slog.Uint64("stream", st.ID)}
	if st.Node != nil {
		attrs = append(attrs, slog.String("node", clip(st.Node.ID)))
	}
	s.logPanic(p, "stream", st, attrs)
}

// logBrokenConnection logs a panic that has closed a connection.
func (s *Server) logBrokenConnection(peer net.Addr, p *panics.Panic) {
	s.logPanic(p, "connection", &Stream{Peer: peer}, []slog.Attr{slog.String("peer", peer.String())})
}

func (s *Server) logPanic(p *panics.Panic, in string, st *Stream, attrs []slog.Attr) {
	tell := func(more ...slog.Attr) { p.Log(s.log, in, slices.Concat(attrs, more)...) }
	if s.repeats.Allow(logOwner(st), "panic "+normalized(p.Error()), 1, func(n int, by []string) { tell(repeated(n, by)...) }) {
		tell()
	}
}

// firstError returns the first error of a stream that ends with two.
func firstError(err, later error) error {
	if err == nil {
		return later
	}
	return err
}

// isInternal reports whether err comes from a panic.
func isInternal(err error) bool { return errors.Is(err, errInternal) }

// guardUnary and guardStream catch panics in other services of the gRPC server, such as reflection, and in interceptors
// that follow.
func guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (res any, err error) {
	err = guardCall(info.FullMethod, func() error { res, err = handle(ctx, req); return err })
	return res, err
}

func guardStream(srv any, rpc grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return guardCall(info.FullMethod, func() error { return handle(srv, rpc) })
}

func guardCall(method string, f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		p.Log(slog.Default(), method)
		return errInternal
	}
	return err
}
