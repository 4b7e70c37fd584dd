package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
)

// StatsHandler returns what a grpc.Server should have (grpc.StatsHandler), so that the log
// tells of calls that gRPC refuses by itself, before any handler hears of them: those that
// are compressed in a way that nobody here knows ([GRPCOptions]).
func (s *Server) StatsHandler() stats.Handler { return calls{s} }

// calls looks at how they begin.
type calls struct{ server *Server }

// HandleRPC implements [stats.Handler].
func (c calls) HandleRPC(ctx context.Context, e stats.RPCStats) {
	in, ok := e.(*stats.InHeader)
	if !ok || in.Compression == "" || in.Compression == encoding.Identity || encoding.GetCompressor(in.Compression) != nil {
		return
	}
	st := &Stream{}
	_ = c.server.guarded(st, func() error {
		c.server.rejects(peer.NewContext(ctx, &peer.Peer{Addr: in.RemoteAddr}), st, reject(malformed, codes.Unimplemented, "compressed requests are refused, and these are compressed by %q", clip(in.Compression)))
		return nil
	})
}

// TagRPC implements [stats.Handler].
func (calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements [stats.Handler].
func (calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (calls) HandleConn(context.Context, stats.ConnStats) {}
