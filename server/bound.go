package server

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Bound returns a registrar that adds services to g whose streams count against
// [Limits.Others]: those of other services cost memory, too, and anybody may open
// them. The health service is registered so by [Server.Register].
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
		handle := st.Handler
		st.Handler = func(srv any, g grpc.ServerStream) error {
			defer b.server.others.Add(-1)
			if n := b.server.others.Add(1); n > int64(b.server.bounds.Others) {
				err := reject(tooOther, codes.ResourceExhausted, "limit exceeded: %d streams of other services are open, all that this server takes", n-1)
				b.server.rejects(g.Context(), &Stream{}, err)
				return err
			}
			return handle(srv, g)
		}
		own.Streams[i] = st
	}
	b.ServiceRegistrar.RegisterService(&own, impl)
}

// GetServiceInfo returns what is registered, which reflection wants to know.
func (b bound) GetServiceInfo() map[string]grpc.ServiceInfo {
	if g, ok := b.ServiceRegistrar.(interface {
		GetServiceInfo() map[string]grpc.ServiceInfo
	}); ok {
		return g.GetServiceInfo()
	}
	return nil
}
