package server

import (
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
	// sends all its names and their versions in one message: 100,000 of them
	// need 10 MiB, more than gRPC's default of 4 MiB.
	MaxRequest = 64 << 20

	// MaxStreams is how many streams one connection may have open. "If ADS is
	// not used, Envoy opens a stream per EDS, RDS or SDS resource."
	MaxStreams = 100_000
)

// GRPCOptions returns the options that a grpc.Server must have to serve a
// Server. It may have more, and options that follow override these: requests of
// up to [MaxRequest], [MaxStreams] streams per connection, keepalive.
func GRPCOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.MaxRecvMsgSize(MaxRequest),
		grpc.MaxConcurrentStreams(MaxStreams),
		// Clients may ping an idle connection every 5 s, as proxies are often
		// told to; the default of 5 min would cut them off.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// A peer that vanished is noticed within 40 s.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// Static windows: gRPC would else ping after each ACK to estimate the
		// bandwidth of requests, which is of no interest here.
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		// An idle connection keeps its read buffer; the other one is shared.
		grpc.ReadBufferSize(4 << 10),
	}
}

// window is how much of a request may be under way unread, per stream and per
// connection.
const window = 1 << 20

// A message is a discovery request or response in its encoded form.
type message struct{ data mem.BufferSlice }

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
		m.data = b
		return nil
	}
	return c.CodecV2.Unmarshal(b, v)
}
