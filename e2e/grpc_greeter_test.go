package e2e

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The service that gRPC clients call. It needs no generated code in any
// language: a message is the text itself.
var greeterService = grpc.ServiceDesc{
	ServiceName: "e2e.Greeter",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Greet",
		Handler: func(name any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			var nothing string
			if err := read(&nothing); err != nil {
				return nil, err
			}
			handle := func(context.Context, any) (any, error) { s := name.(string); return &s, nil }
			if intercept == nil {
				return handle(ctx, &nothing)
			}
			// A server with xDS matches routes here.
			return intercept(ctx, &nothing, &grpc.UnaryServerInfo{Server: name, FullMethod: greetMethod}, handle)
		},
	}},
}

const greetMethod = "/e2e.Greeter/Greet"

type text struct{}

func (text) Name() string { return "text" }

func (text) Marshal(v any) ([]byte, error) { return []byte(*v.(*string)), nil }

func (text) Unmarshal(b []byte, v any) error { *v.(*string) = string(b); return nil }

// newGreeter starts a gRPC server that answers with its name.
func newGreeter(t *testing.T, name string) upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(text{}))
	s.RegisterService(&greeterService, name)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return upstream{name, l.Addr().(*net.TCPAddr).Port}
}

// greet is a caller over a connection.
func greet(conn *grpc.ClientConn) caller {
	return func(ctx context.Context) (answer, error) {
		var nothing, name string
		err := conn.Invoke(ctx, greetMethod, &nothing, &name, grpc.ForceCodec(text{}))
		return answer{from: name}, err
	}
}

// greetAt is a caller of the server at a port of the loopback.
func greetAt(t *testing.T, port int) caller {
	t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("passthrough:///127.0.0.1:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return greet(conn)
}
