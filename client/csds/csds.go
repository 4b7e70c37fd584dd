// Package csds tells how the clients of a program stand with their resources: the Client Status
// Discovery Service, which `grpcdebug ADDR xds status` asks.
//
//	csds.Register(grpcServer, csds.Of(c))
//
// It keeps nothing and starts no goroutine. Secrets, which are all that Envoy's API marks as
// sensitive, are in no answer; all else that the clients know is: serve it to whom you trust.
package csds

import (
	"context"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/xds"
)

// A Client says how it stands with its resources. A *client.Client is one.
type Client interface {
	Node() *xds.Node       // nil: it is not known
	Dump() []client.Status // types in any order, each in one piece
}

// A Scoped client is one of several in a program.
type Scoped struct {
	Client
	Scope string // "client_scope", such as the target that it is for; empty: there is one
}

// Of returns clients that do not change, for [Register].
func Of(all ...Client) func() []Scoped {
	scoped := make([]Scoped, len(all))
	for i, c := range all {
		scoped[i] = Scoped{Client: c}
	}
	return func() []Scoped { return scoped }
}

// Register adds the service to a gRPC server, which may be that of the program's own services.
// Clients returns those to tell of, in their order; each call of the service asks for them.
func Register(g grpc.ServiceRegistrar, clients func() []Scoped) {
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

// config makes of a dump what the service tells.
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
