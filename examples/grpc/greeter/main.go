// Command greeter is a gRPC server, and a gRPC client that finds it by xDS without a proxy:
// docs/proxyless-grpc.md.
//
//	go run . serve 127.0.0.1:50051
//	GRPC_XDS_BOOTSTRAP=xds.json go run . call xds:///greeter.local
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	_ "google.golang.org/grpc/xds" // lets gRPC resolve xds:///
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: greeter serve HOST:PORT, or greeter call TARGET")
	}
	run := map[string]func(string) error{"serve": serve, "call": call}[os.Args[1]]
	if run == nil {
		log.Fatal("the first argument must be serve or call")
	}
	if err := run(os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	s.RegisterService(&greeter, "hello from "+l.Addr().String())
	return s.Serve(l)
}

func call(target string) error {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var answer wrapperspb.StringValue
	if err := conn.Invoke(ctx, "/examples.Greeter/Greet", &emptypb.Empty{}, &answer); err != nil {
		return err
	}
	fmt.Println(answer.Value)
	return nil
}

// greeter describes a service with one method, like the output of protoc-gen-go-grpc. It is written by hand,
// so that the example needs no generated code.
var greeter = grpc.ServiceDesc{
	ServiceName: "examples.Greeter",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Greet",
		Handler: func(greeting any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := read(&emptypb.Empty{}); err != nil {
				return nil, err
			}
			return wrapperspb.String(greeting.(string)), nil
		},
	}},
}
