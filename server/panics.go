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

// errInternal is what a client is told of a panic. What it was is for the log.
var errInternal = status.Error(codes.Internal, "internal error")

// guarded calls f on behalf of a stream. A panic in it, be it ours or one of
// what an embedder brought (source, observer, identifier, logger), ends the
// stream and nothing else.
func (s *Server) guarded(st *Stream, f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		s.panicked(st, p)
		return errInternal
	}
	return err
}

// panicked logs a panic. A client that comes back may cause it again and again:
// those that say the same within 10 s are one line more, which counts.
func (s *Server) panicked(st *Stream, p *panics.Panic) {
	attrs := []slog.Attr{slog.Uint64("stream", st.ID)}
	if st.Node != nil {
		attrs = append(attrs, slog.String("node", clip(st.Node.ID)))
	}
	s.logPanic(p, "stream", st, attrs)
}

// broken is told of a panic that has closed a connection.
func (s *Server) broken(peer net.Addr, p *panics.Panic) {
	s.logPanic(p, "connection", &Stream{Peer: peer}, []slog.Attr{slog.String("peer", peer.String())})
}

func (s *Server) logPanic(p *panics.Panic, in string, st *Stream, attrs []slog.Attr) {
	tell := func(more ...slog.Attr) { p.Log(s.log, in, slices.Concat(attrs, more)...) }
	if s.repeats.Allow(whose(st), "panic "+mask(p.Error()), 1, func(n int, by []string) { tell(repeated(n, by)...) }) {
		tell()
	}
}

// merge is the error that ends a stream which ends with one and then another.
func merge(err, later error) error {
	if err == nil {
		return later
	}
	return err
}

// isInternal reports whether a panic has ended something.
func isInternal(err error) bool { return errors.Is(err, errInternal) }

// guardUnary and guardStream guard what else a gRPC server serves, such as
// reflection, and interceptors that follow.
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
