package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that the type codec falls back to
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// The limits that GRPCOptions sets.
const (
	// MaxRequest is the largest request in bytes. After a reconnect a client sends all its names
	// and versions in one message: 100,000 names and versions of 100 bytes each need 22 MiB. The
	// default of gRPC is 4 MiB. A larger request ends its stream with RESOURCE_EXHAUSTED.
	MaxRequest = 32 << 20

	// MaxStreams is how many streams a connection may have open. "If ADS is not used, Envoy opens a stream
	// per EDS, RDS or SDS resource." More streams wait at the client.
	MaxStreams = 10_000

	// maxHeader is the largest size of the headers of a call in bytes, including tokens.
	maxHeader = 64 << 10

	// handshake is how long a connection may take to become ready, including TLS.
	handshake = 10 * time.Second
)

// Keepalive returns the keepalive parameters that [GRPCOptions] sets, for programs that change some of them. A client
// that vanished is noticed within 50 s. A connection without streams ends after a minute, so that it does not
// use up the connections of its address. XDS clients always have a stream.
func Keepalive() keepalive.ServerParameters {
	return keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second, MaxConnectionIdle: time.Minute}
}

// GRPCOptions returns the options that a grpc.Server needs to serve a Server. Without them [Server.Register] and each
// call return an error. You may add more options. Later options override these, except for the codec, which
// handles all services of the grpc.Server and passes other messages to the codec of gRPC.
//
// The options set: requests up to [MaxRequest], [MaxStreams] streams for each connection, 64 KiB of headers, 10 s to
// set up a connection, and [Keepalive]. A panic in a handler of any service ends its call with INTERNAL.
//
// Compressed requests are refused, unless the program links a compressor such as
// grpc/encoding/gzip: 30 KB of compressed data could expand to 31 MiB before the server counts the
// bytes. Responses are not compressed, because all streams share one encoding.
//
// Servers that untrusted clients can reach also need [Server.Credentials] and [Server.Tap]. The server does not
// report their absence. Without Credentials, unfinished requests and the rate of new streams are not limited.
// Without Tap, each stream of a flood costs a goroutine until it is refused.
//
//	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)), grpc.InTapHandle(s.Tap))...)
func GRPCOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.ChainUnaryInterceptor(guardUnary),
		grpc.ChainStreamInterceptor(guardStream),
		grpc.MaxRecvMsgSize(MaxRequest),
		grpc.MaxConcurrentStreams(MaxStreams),
		// Clients may ping an idle connection every 5 s, a common setting of proxies. The default of 5
		// min would close their connections.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(Keepalive()),
		grpc.ConnectionTimeout(handshake),
		grpc.MaxHeaderListSize(maxHeader),
		// Static windows: otherwise gRPC pings after each ACK to estimate the bandwidth of requests,
		// which does not matter here.
		grpc.StaticStreamWindowSize(unreadWindow),
		grpc.StaticConnWindowSize(window),
		// An idle connection keeps its read buffer. Write buffers are shared.
		grpc.ReadBufferSize(4 << 10),
	}
}

// Bytes that may wait unread on a stream, and that may be in flight on a connection. A stream that receives a larger
// request gets a larger window.
const (
	unreadWindow = 64 << 10
	window       = 1 << 20
)

// plain switches off compression of the response, even if the client compresses. All streams share
// the encoding of a response, but each stream would compress it again.
func plain(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // an error means that this is not a call of gRPC
}

// A message is an encoded discovery request or response.
type message struct {
	data mem.BufferSlice
	late bool // a request above the rate: the next one waits

	coded bool // our codec has received the message
}

// codec passes encoded messages through unchanged. Other messages, such as those of the health
// service, go to the usual codec.
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
