package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Bound returns a registrar that adds services to g whose streams count against
// [Limits.Others]: those of other services cost memory, too, and anybody may open
// them. Unary calls count against [Limits.Silent] until their requests have come. Handlers must end with the contexts of their streams, which may be before
// their clients want it. g must not be nil. The health service is registered so by [Server.Register].
func (s *Server) Bound(g grpc.ServiceRegistrar) grpc.ServiceRegistrar { return bound{s, g} }

type bound struct {
	server *Server
	grpc.ServiceRegistrar
}

// RegisterService implements [grpc.ServiceRegistrar].
func (b bound) RegisterService(d *grpc.ServiceDesc, impl any) {
	own := *d
	own.Streams = make([]grpc.StreamDesc, len(d.Streams))
	for i, st := range d.Streams {
		handle, method := st.Handler, "/"+d.ServiceName+"/"+st.StreamName
		st.Handler = func(srv any, g grpc.ServerStream) error {
			err := b.server.another(g, func() error { return guardCall(method, func() error { return handle(srv, g) }) })
			b.server.rejects(g.Context(), &Stream{}, err)
			return err
		}
		own.Streams[i] = st
	}
	own.Methods = make([]grpc.MethodDesc, len(d.Methods))
	for i, m := range d.Methods {
		handle, method := m.Handler, "/"+d.ServiceName+"/"+m.MethodName
		m.Handler = func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(v any) error {
				return b.server.request(ctx, func() error { return guardCall(method, func() error { return decode(v) }) })
			}, intercept)
		}
		own.Methods[i] = m
	}
	b.ServiceRegistrar.RegisterService(&own, impl)
}

// another runs a stream of another service, for as long as it has a seat.
func (s *Server) another(g grpc.ServerStream, handle func() error) error {
	lost := newLoss()
	from := peerOf(g.Context())
	seat := s.others.enter(from, lost)
	if seat == nil {
		return s.others.full
	}
	defer s.others.leave(seat)
	ended := make(chan error, 1)
	go func() { ended <- handle() }() // gRPC ends what it waits for when this returns
	select {
	case err := <-ended:
		return err
	case l := <-lost:
		return l.why
	}
}

// errLostOther ends the newest stream of another service of the address that has most.
var errLostOther = reject(tooOther, codes.ResourceExhausted, "limit exceeded: the maximum number of streams of other services is open, and most of them are of this address")

// GetServiceInfo returns what is registered, which reflection wants to know.
func (b bound) GetServiceInfo() map[string]grpc.ServiceInfo {
	if g, ok := b.ServiceRegistrar.(interface {
		GetServiceInfo() map[string]grpc.ServiceInfo
	}); ok {
		return g.GetServiceInfo()
	}
	return nil
}
