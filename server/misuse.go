package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errNoOptions is the error of [Server.Register] and of each call, if a grpc.Server was made without the options. Without
// their codec the server cannot read requests.
var errNoOptions = errors.New("the grpc.Server was made without server.GRPCOptions(), or another codec follows these: make it with grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)))...)")

// Errors of programs that use the package wrongly.
var (
	errNotMade     = errors.New("the server was not made by server.New")
	errNoSource    = errors.New("server.New was given a nil source")
	errNoRegistrar = errors.New("server.Register was given a nil grpc.Server")
)

// isNil reports whether an interface is nil or holds a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// check returns the reason why the server cannot serve, or nil.
func (s *Server) check() error {
	switch {
	case s == nil || s.health == nil:
		return errNotMade
	case s.watchNode == nil:
		return errNoSource
	}
	return nil
}

// unwrapRegistrar returns the original registrar inside registrars that [Server.Limited] returned.
func unwrapRegistrar(g grpc.ServiceRegistrar) grpc.ServiceRegistrar {
	for b, ok := g.(limitedRegistrar); ok; b, ok = g.(limitedRegistrar) {
		g = b.ServiceRegistrar
	}
	return g
}

// hasService reports whether a registrar has a service. If the registrar cannot list its services,
// it returns false.
func hasService(g grpc.ServiceRegistrar, service string) bool {
	i, ok := unwrapRegistrar(g).(interface {
		GetServiceInfo() map[string]grpc.ServiceInfo
	})
	if !ok {
		return false
	}
	_, ok = i.GetServiceInfo()[service]
	return ok
}

// conflictingService returns an error if the registrar already has one of the server's services. GRPC would end the program.
func (s *Server) conflictingService(g grpc.ServiceRegistrar) error {
	for _, d := range s.services() {
		if hasService(g, d.ServiceName) {
			return fmt.Errorf("the grpc.Server has %s already: call server.Register once, and register no other server of it", d.ServiceName)
		}
	}
	return nil
}

// lacksOptions reports whether a grpc.Server was made without [GRPCOptions]. It looks for their codec in an unexported
// field, because gRPC does not export the options. For other registrars, or if gRPC has renamed the field, the
// first call detects the mistake.
func lacksOptions(g grpc.ServiceRegistrar) bool {
	made, ok := unwrapRegistrar(g).(*grpc.Server)
	if !ok {
		return false
	}
	opts := reflect.ValueOf(made).Elem().FieldByName("opts")
	if opts.Kind() != reflect.Struct {
		return false
	}
	c := opts.FieldByName("codec")
	return c.Kind() == reflect.Interface && (c.IsNil() || c.Elem().Type() != reflect.TypeFor[codec]())
}

// refusingService returns a copy of a service in which each call returns an error. The calls read
// no request, because without the codec gRPC would send its own error.
func (s *Server) refusingService(d *grpc.ServiceDesc, why error) *grpc.ServiceDesc {
	own := *d
	own.Streams, own.Methods = slices.Clone(d.Streams), slices.Clone(d.Methods)
	for i := range own.Streams {
		own.Streams[i].Handler = func(any, grpc.ServerStream) error { return s.cannotServe(why) }
	}
	for i := range own.Methods {
		own.Methods[i].Handler = func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			return nil, s.cannotServe(why)
		}
	}
	return &own
}

// cannotServe returns the error for the clients of a server that cannot serve. It logs the first
// such error.
func (s *Server) cannotServe(why error) error {
	if s.misused.CompareAndSwap(false, true) {
		s.log.Error("no client can be served", "error", why)
	}
	return status.Error(codes.FailedPrecondition, why.Error())
}

// readable returns the error of a call that received m, or failed with err. If another codec has
// decoded the request, the options are missing.
func (s *Server) readable(m *message, err error) error {
	if m.coded || err != nil && (status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "unmarshal")) {
		return err
	}
	return s.cannotServe(errNoOptions)
}
