// Package bootstrap writes what a client needs to find its management server:
// Envoy's bootstrap, and gRPC's. It knows the two formats, not Envoy's messages,
// and reads and writes no file.
package bootstrap

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/internal/listen"
)

// Options say who the client is and where its server. Node is needed, and Server
// by all but [EnvoyFiles].
type Options struct {
	Node    string // id
	Cluster string // the service that the node belongs to; "" leaves it out, or is [DefaultCluster] for Envoy

	Server string // host:port, [ipv6]:port, unix:///path or unix:path
	TLS    *TLS   // nil: plain text

	// For Envoy only, as gRPC knows but one way.
	Delta   bool   // incremental, instead of state of the world
	PerType bool   // a service for each type, instead of the aggregated one
	REST    bool   // polls over REST-JSON, instead of gRPC; then the types are apart, and Delta cannot be
	Admin   string // where Envoy's admin interface listens; "" is [DefaultAdmin]
}

// What Envoy gets if nothing is said.
const (
	DefaultCluster = "default" // Envoy does not start without one
	DefaultAdmin   = "127.0.0.1:9901"
)

// TLS says how client and server know each other. Paths are of PEM files on the
// client's machine.
type TLS struct {
	CA        string // what the server's certificate leads to; "" is the system's roots, which Envoy does not have
	Cert, Key string // the client's certificate; "": none

	// ServerName is what the server's certificate must be for; "" is the host of
	// Options.Server.
	ServerName string
}

// checkNode returns what is wrong with who the client is.
func (o Options) checkNode() error {
	switch {
	case o.Node == "":
		return errors.New("the node's id is missing (--node)")
	case !utf8.ValidString(o.Node):
		return fmt.Errorf("node id %q is not UTF-8", o.Node)
	case !utf8.ValidString(o.Cluster):
		return fmt.Errorf("cluster %q is not UTF-8", o.Cluster)
	}
	return nil
}

// check returns the address of the server, or what is wrong with the options.
func (o Options) check() (listen.Address, error) {
	if err := o.checkNode(); err != nil {
		return listen.Address{}, err
	}
	if t := o.TLS; t != nil && (t.Cert == "") != (t.Key == "") {
		return listen.Address{}, errors.New("TLS: a certificate and its private key must be given together (--tls-cert, --tls-key)")
	}
	a, err := listen.Parse(o.Server)
	switch {
	case err != nil:
		return a, fmt.Errorf("--server: %w", err)
	case a.Any():
		return a, fmt.Errorf("--server: %s is an address that only a server listens on; clients need the name or address of its machine", a)
	case a.Network == "tcp" && a.Port == 0:
		return a, fmt.Errorf("--server: %s has no port", a)
	}
	return a, nil
}
