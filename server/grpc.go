package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that codec falls back to
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// The limits that GRPCOptions sets.
const (
	// MaxRequest is the largest request in bytes. A client that reconnects
	// sends all its names and their versions in one message: 100,000 of them,
	// of 100 bytes each, need 22 MiB; gRPC's default is 4 MiB. A larger one
	// ends its stream with RESOURCE_EXHAUSTED.
	MaxRequest = 32 << 20

	// MaxStreams is how many streams one connection may have open. "If ADS is
	// not used, Envoy opens a stream per EDS, RDS or SDS resource." Those beyond
	// it wait at the client.
	MaxStreams = 10_000

	// maxHeader is the size of the headers of a call in bytes, tokens included.
	maxHeader = 64 << 10

	// handshake is how long a connection may take to begin, TLS included.
	handshake = 10 * time.Second
)

// Keepalive is what GRPCOptions says of connections, for those who want to say
// more: a peer that vanished is noticed within 50 s, and a connection without a
// stream ends after a minute, so that it takes no place from others of its address
// for long. xDS clients always have a stream.
func Keepalive() keepalive.ServerParameters {
	return keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second, MaxConnectionIdle: time.Minute}
}

// GRPCOptions returns the options that a grpc.Server must have to serve a
// Server: without them [Server.Register] returns an error, and so does each call. It may have
// more, and options that follow override these, but for the codec, which is for all services of
// the grpc.Server and leaves messages of others to gRPC's own. They are: requests of
// up to [MaxRequest], [MaxStreams] streams per connection, 64 KiB of headers,
// 10 s for a connection to begin, [Keepalive]. Compressed requests are refused, unless the
// program links a compressor, such as grpc/encoding/gzip: 30 KB of them could become 31 MiB
// before anybody counts these. Responses are never compressed: one encoding is shared by
// all streams. A panic in a handler of any service ends its call with INTERNAL.
//
// [Server.Credentials] and [Server.Tap] are options more, which a server that others than friends
// can reach should have. Nothing tells if they are missing: without the first, requests that are not
// whole, and streams that come and go, are not bounded; without the second, a flood of streams
// without a request costs a goroutine each until they are refused.
//
//	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)), grpc.InTapHandle(s.Tap))...)
func GRPCOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.ChainUnaryInterceptor(guardUnary),
		grpc.ChainStreamInterceptor(guardStream),
		grpc.MaxRecvMsgSize(MaxRequest),
		grpc.MaxConcurrentStreams(MaxStreams),
		// Clients may ping an idle connection every 5 s, as proxies are often
		// told to; the default of 5 min would cut them off.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(Keepalive()),
		grpc.ConnectionTimeout(handshake),
		grpc.MaxHeaderListSize(maxHeader),
		// Static windows: gRPC would else ping after each ACK to estimate the
		// bandwidth of requests, which is of no interest here.
		grpc.StaticStreamWindowSize(unreadWindow),
		grpc.StaticConnWindowSize(window),
		// An idle connection keeps its read buffer; the other one is shared.
		grpc.ReadBufferSize(4 << 10),
	}
}

// How many bytes may wait unread on a stream, and be under way on a connection.
// A stream that reads a larger request gets what it needs.
const (
	unreadWindow = 64 << 10
	window       = 1 << 20
)

// plain keeps what a call sends uncompressed, though its client compresses: a
// response is encoded once for all streams, and would be compressed for each.
func plain(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // an error says that the call is none of gRPC's
}

// A message is a discovery request or response in its encoded form.
type message struct {
	data mem.BufferSlice
	late bool // a request that is one too many: the next one waits

	coded bool // our codec has read it
}

// codec passes messages through as they are; everything else, such as the
// health service's, is left to the usual codec.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*message); ok {
		m.data.Ref()
		return m.data, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(b mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		b.Ref()
		m.data, m.coded = b, true
		return nil
	}
	return c.CodecV2.Unmarshal(b, v)
}
