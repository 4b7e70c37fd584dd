package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Limited returns a registrar for other services on the same grpc.Server, such as reflection.
// Streams of these services count against [Limits.Others], because streams cost memory and any
// client may open them. Unary calls count against [Limits.Silent] until the request has arrived.
// When a limit is reached, the context of a handler may end early. The registrar g must not be nil.
// [Server.Register] registers the health service in this way.
func (s *Server) Limited(g grpc.ServiceRegistrar) grpc.ServiceRegistrar {
	return limitedRegistrar{s, g}
}

type limitedRegistrar struct {
	server *Server
	grpc.ServiceRegistrar
}

// RegisterService implements [grpc.ServiceRegistrar].
func (b limitedRegistrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	own := *d
	own.Streams = make([]grpc.StreamDesc, len(d.Streams))
	for i, st := range d.Streams {
		handle, method := st.Handler, "/"+d.ServiceName+"/"+st.StreamName
		st.Handler = func(srv any, g grpc.ServerStream) error {
			err := b.server.runOther(g, func() error { return guardCall(method, func() error { return handle(srv, g) }) })
			b.server.logRejection(g.Context(), &Stream{}, err)
			return err
		}
		own.Streams[i] = st
	}
	own.Methods = make([]grpc.MethodDesc, len(d.Methods))
	for i, m := range d.Methods {
		handle, method := m.Handler, "/"+d.ServiceName+"/"+m.MethodName
		m.Handler = func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(v any) error {
				return b.server.awaitRequest(ctx, func() error { return guardCall(method, func() error { return decode(v) }) })
			}, intercept)
		}
		own.Methods[i] = m
	}
	b.ServiceRegistrar.RegisterService(&own, impl)
}

// runOther runs a stream of another service while it has a seat.
func (s *Server) runOther(g grpc.ServerStream, handle func() error) error {
	lost := newNotices()
	from := peerOf(g.Context())
	seat := s.others.enter(from, lost)
	if seat == nil {
		return s.others.full
	}
	defer s.others.leave(seat)
	ended := make(chan error, 1)
	go func() { ended <- handle() }() // when this function returns, gRPC cancels the context of handle
	select {
	case err := <-ended:
		return err
	case l := <-lost:
		return l.why
	}
}

// errLostOther ends a stream of another service that lost its seat to another address.
var errLostOther = reject(tooManyOthers, codes.ResourceExhausted, "limit exceeded: the maximum number of streams of other services is open, and most of them are of this address")

// GetServiceInfo returns the registered services, for the reflection service.
func (b limitedRegistrar) GetServiceInfo() map[string]grpc.ServiceInfo {
	if g, ok := b.ServiceRegistrar.(interface {
		GetServiceInfo() map[string]grpc.ServiceInfo
	}); ok {
		return g.GetServiceInfo()
	}
	return nil
}
