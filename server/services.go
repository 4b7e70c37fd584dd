package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/xds"
)

// services returns the gRPC services: the aggregated service, and the service of each type that has
// one. With WithV2, the services of v2 are included.
func (s *Server) services() []*grpc.ServiceDesc {
	ads := xds.Type{
		Service: "envoy.service.discovery.v3.AggregatedDiscoveryService", Proto: "envoy/service/discovery/v3/ads.proto",
		Stream: "StreamAggregatedResources", Delta: "DeltaAggregatedResources",
	}
	all := []*grpc.ServiceDesc{s.service(&ads, nil, nil)}
	for _, t := range xds.Types() {
		if t.Service != "" {
			all = append(all, s.service(t, t, nil))
		}
	}
	if !s.v2 {
		return all
	}
	ads.Service, ads.Proto = "envoy.service.discovery.v2.AggregatedDiscoveryService", "envoy/service/discovery/v2/ads.proto"
	all = append(all, s.service(&ads, nil, nil))
	for _, t := range xds.Types() {
		if l := t.Legacy(); l != nil {
			all = append(all, s.service(l, l, t))
		}
	}
	return all
}

// service makes a gRPC service. The argument only is the type of the service, or nil for the
// aggregated service. The argument also is another type that a stream serves instead, if the first
// request has that type.
func (s *Server) service(row, only, also *xds.Type) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: row.Service, HandlerType: (*any)(nil), Metadata: row.Proto}
	stream := func(name string, v xds.Variant) {
		if name == "" {
			return
		}
		d.Streams = append(d.Streams, grpc.StreamDesc{
			StreamName: name, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, g grpc.ServerStream) error { return s.serve(g, v, only, also) },
		})
	}
	stream(row.Stream, xds.SotW)
	stream(row.Delta, xds.Delta)
	if row.Fetch != "" {
		full := "/" + row.Service + "/" + row.Fetch
		d.Methods = append(d.Methods, grpc.MethodDesc{
			MethodName: row.Fetch,
			Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				var m message
				if err := s.awaitRequest(ctx, func() error {
					return s.guarded(&Stream{Type: only}, func() error { return s.readable(&m, decode(&m)) })
				}); err != nil {
					return nil, err
				}
				handle := func(ctx context.Context, req any) (any, error) { return s.fetch(ctx, req.(*message), only, also) }
				if intercept == nil {
					return handle(ctx, &m)
				}
				return intercept(ctx, &m, &grpc.UnaryServerInfo{Server: s, FullMethod: full}, handle)
			},
		})
	}
	return d
}
