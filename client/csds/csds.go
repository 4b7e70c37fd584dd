// Package csds serves the state of a program's xDS clients over gRPC: the Client Status Discovery
// Service, which `grpcdebug ADDR xds status` reads.
//
//	csds.Register(grpcServer, csds.Clients(c))
//
// It stores nothing and starts no goroutine. Responses do not contain the secrets that Envoy's API
// marks as sensitive. They contain all other contents of resources, so serve them only to trusted
// callers.
package csds

import (
	"context"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/xds"
)

// A Client reports the states of its resources. *client.Client implements it.
type Client interface {
	Node() *xds.Node       // nil: unknown
	Dump() []client.Status // the statuses of a type must be consecutive
}

// A ScopedClient is one of several clients of a program.
type ScopedClient struct {
	Client
	Scope string // "client_scope" in the response, such as the client's target; may be empty
}

// Clients returns a fixed list of clients for [Register].
func Clients(all ...Client) func() []ScopedClient {
	scoped := make([]ScopedClient, len(all))
	for i, c := range all {
		scoped[i] = ScopedClient{Client: c}
	}
	return func() []ScopedClient { return scoped }
}

// Register adds the service to a gRPC server, which may also serve the program's own services. The
// service calls the function clients for each request, to get the clients that it reports.
func Register(g grpc.ServiceRegistrar, clients func() []ScopedClient) {
	csds.New(csds.Options{Clients: func() (all []csds.Client) {
		for _, c := range clients() {
			node := c.Node()
			if node == nil {
				node = &xds.Node{}
			}
			all = append(all, csds.Client{Node: node, Scope: c.Scope, Config: func(context.Context) ([]csds.TypeConfig, error) {
				return config(c.Dump()), nil
			}})
		}
		return all
	}}).Register(g)
}

// config returns the types and resources of a dump in the form of CSDS.
func config(dump []client.Status) (all []csds.TypeConfig) {
	for _, s := range dump {
		if n := len(all); n == 0 || !all[n-1].Type.Is(s.Type) {
			all = append(all, csds.TypeConfig{Type: s.Type})
		}
		t := &all[len(all)-1]
		t.Resources = append(t.Resources, resource(&s))
	}
	return all
}

func resource(s *client.Status) csds.Resource {
	r := csds.Resource{Name: s.Name, Body: s.Resource, Version: s.Version, Updated: s.Updated, Status: int32(s.State)}
	if s.Err != nil {
		r.Failure = &csds.Failure{At: s.ErrAt, Version: s.ErrVersion, Text: s.Err.Error()}
	}
	return r
}
