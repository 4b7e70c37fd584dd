package bootstrap

import (
	"errors"

	"github.com/chancery-xds/chancery/client"
)

var errNotYet = errors.New("this program has no such transport")

// real are the transports of package client and of those below it.
var real = transports{
	grpc: func(remote) (client.Transport, error) { return nil, errNotYet },
	rest: func(poll) (client.Transport, error) { return nil, errNotYet },
	file: func(disk) (client.Transport, error) { return nil, errNotYet },
}
