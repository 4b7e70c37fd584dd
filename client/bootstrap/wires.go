package bootstrap

import (
	"errors"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/client"
)

var (
	errREST = errors.New("polls over REST are not supported yet")
	errFile = errors.New("files are not supported yet")
)

// real are the transports of package client and of those below it.
var real = transports{
	grpc: func(r remote) (client.Transport, error) {
		o := client.GRPCOptions{Credentials: r.credentials, Delta: r.delta, PerType: r.perType}
		for _, c := range r.perRPC {
			o.Dial = append(o.Dial, grpc.WithPerRPCCredentials(c))
		}
		if r.authority != "" {
			o.Dial = append(o.Dial, grpc.WithAuthority(r.authority))
		}
		return client.GRPC(r.target, o)
	},
	rest: func(poll) (client.Transport, error) { return nil, errREST },
	file: func(disk) (client.Transport, error) { return nil, errFile },
}
