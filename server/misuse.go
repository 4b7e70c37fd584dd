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

// errNoOptions is what [Server.Register] returns, and what each call gets, if a grpc.Server lacks
// the options: without the codec no request can be read.
var errNoOptions = errors.New("the grpc.Server was made without server.GRPCOptions(), or another codec follows these: make it with grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)))...)")

// Mistakes of who makes a server.
var (
	errNotMade     = errors.New("the server was not made by server.New")
	errNoSource    = errors.New("server.New was given a nil source")
	errNoRegistrar = errors.New("server.Register was given a nil grpc.Server")
)

// isNil reports whether there is nothing behind an interface, or a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// check returns why the server cannot serve; nil if it can.
func (s *Server) check() error {
	switch {
	case s == nil || s.health == nil:
		return errNotMade
	case s.watch == nil:
		return errNoSource
	}
	return nil
}

// behind returns the registrar that a bound one adds services to.
func behind(g grpc.ServiceRegistrar) grpc.ServiceRegistrar {
	for b, ok := g.(bound); ok; b, ok = g.(bound) {
		g = b.ServiceRegistrar
	}
	return g
}

// has reports whether a registrar has a service, as far as it can say.
func has(g grpc.ServiceRegistrar, service string) bool {
	i, ok := behind(g).(interface {
		GetServiceInfo() map[string]grpc.ServiceInfo
	})
	if !ok {
		return false
	}
	_, ok = i.GetServiceInfo()[service]
	return ok
}

// taken returns an error if a registrar has a service already that the server would add: gRPC
// ends the whole program then.
func (s *Server) taken(g grpc.ServiceRegistrar) error {
	for _, d := range s.services() {
		if has(g, d.ServiceName) {
			return fmt.Errorf("the grpc.Server has %s already: call server.Register once, and register no other server of it", d.ServiceName)
		}
	}
	return nil
}

// lacksOptions reports whether a grpc.Server was made without [GRPCOptions]. The codec stands for
// all of them: nobody has it from elsewhere. gRPC does not say what a server was made with, so it
// is looked up; of other registrars, and if gRPC's fields have other names, the first call tells.
func lacksOptions(g grpc.ServiceRegistrar) bool {
	made, ok := behind(g).(*grpc.Server)
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

// refusing returns a service of which each call gets an error. It reads no request: without the
// codec gRPC would answer in its own words.
func (s *Server) refusing(d *grpc.ServiceDesc, why error) *grpc.ServiceDesc {
	own := *d
	own.Streams, own.Methods = slices.Clone(d.Streams), slices.Clone(d.Methods)
	for i := range own.Streams {
		own.Streams[i].Handler = func(any, grpc.ServerStream) error { return s.useless(why) }
	}
	for i := range own.Methods {
		own.Methods[i].Handler = func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			return nil, s.useless(why)
		}
	}
	return &own
}

// useless is what the client of a server is told that serves nobody. The first one is logged:
// each would say the same.
func (s *Server) useless(why error) error {
	if s.misused.CompareAndSwap(false, true) {
		s.log.Error("no client can be served", "error", why)
	}
	return status.Error(codes.FailedPrecondition, why.Error())
}

// readable returns the error of a call that has read m, or has failed to. What another codec has
// made of it is no request; of that one which has failed, gRPC tells the client by itself.
func (s *Server) readable(m *message, err error) error {
	if m.coded || err != nil && (status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "unmarshal")) {
		return err
	}
	return s.useless(errNoOptions)
}
