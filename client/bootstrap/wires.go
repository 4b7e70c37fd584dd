package bootstrap

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/file"
	"github.com/chancery-xds/chancery/client/rest"
	"github.com/chancery-xds/chancery/internal/envoy"
)

// defaultMakers create the transports of package client and its subpackages.
var defaultMakers = transportMakers{
	grpc: func(r grpcServer) (client.Transport, error) {
		o := client.GRPCOptions{Credentials: r.credentials, Delta: r.delta, PerType: r.perType}
		for _, c := range r.perRPC {
			o.DialOptions = append(o.DialOptions, grpc.WithPerRPCCredentials(c))
		}
		if r.authority != "" {
			o.DialOptions = append(o.DialOptions, grpc.WithAuthority(r.authority))
		}
		return client.GRPC(r.target, o)
	},
	rest: func(p restServer) (client.Transport, error) {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.TLSClientConfig, own.IdleConnTimeout = p.tls, 2*p.every
		own.ForceAttemptHTTP2 = false // HTTP/2 only if NextProtos of p.tls asks for it
		if p.unix != "" {
			own.Proxy = nil
			own.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", p.unix)
			}
		}
		return rest.New(p.url, rest.Options{Client: &http.Client{Transport: own}, Refresh: p.every, Timeout: p.timeout, Resolver: envoy.Envoy()})
	},
	file: func(d fileSource) (client.Transport, error) {
		return file.New(d.path, file.Options{WatchedDirectory: d.watched, Log: d.log})
	},
}
