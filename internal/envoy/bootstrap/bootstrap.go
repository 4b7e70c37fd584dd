// Package bootstrap writes bootstraps with which a client finds its management server, for Envoy and
// for gRPC. It knows the two formats, not Envoy's messages, and reads and writes no files.
package bootstrap

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/internal/listen"
)

// Options describe the client and its server. Node is required. Server is required except for
// [EnvoyFiles].
type Options struct {
	Node    string // id
	Cluster string // the service of the node; "" omits it, or means [DefaultCluster] for Envoy

	Server string // host:port, [ipv6]:port, unix:///path or unix:path
	TLS    *TLS   // nil: plain text

	// The fields below are only for Envoy, because gRPC supports only one transport.
	Delta   bool   // incremental, instead of state of the world
	PerType bool   // one service per type, instead of ADS
	REST    bool   // polling over REST-JSON, instead of gRPC; one service per type, and Delta is not possible
	Admin   string // the address of Envoy's admin interface; "" means [DefaultAdmin]

	// RE2ProgramSize is the largest RE2 program of a regular expression that Envoy accepts; 0 means Envoy's default, 100.
	RE2ProgramSize uint32
}

// Defaults for Envoy.
const (
	DefaultCluster = "default" // Envoy does not start without a cluster
	DefaultAdmin   = "127.0.0.1:9901"
)

// TLS configures how client and server authenticate each other. Paths are PEM files on the client's
// machine.
type TLS struct {
	CA        string // authorities for the server's certificate; "" means the system's roots, which Envoy does not have
	Cert, Key string // the client's certificate; "": none

	// ServerName is the expected name in the server's certificate; "" means the host of Options.Server.
	ServerName string
}

// checkNode checks the identity of the client.
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

// check checks the options and returns the address of the server.
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
