// Package bootstrap makes a [client.Config] of the files that xDS clients are started with:
// gRPC's bootstrap ([GRPC], [FromEnv]), Envoy's ([Envoy]), and the ConfigSource inside of
// resources ([EnvoyConfig.Source], [GRPCConfig.Source]).
//
// It reads the files and those of certificates, and connects to nobody: a transport connects
// when its first stream opens. It starts no goroutine. Each error says the file and the field.
// None quotes the value of a field that may be a secret.
package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Options are what a bootstrap does not say. The zero value is ready to use.
type Options struct {
	// Credentials are kinds of channel credentials besides insecure and tls, by the name that a
	// bootstrap has for them. "google_default" needs Google's libraries, which this package does
	// not link: a program that does returns credentials of
	// google.golang.org/grpc/credentials/google.
	Credentials map[string]func(config json.RawMessage) (credentials.TransportCredentials, []credentials.PerRPCCredentials, error)

	// UserAgent and UserAgentVersion are what the node says of the program. Empty: "chancery",
	// and the version of this module if the program knows it.
	UserAgent, UserAgentVersion string

	// Log is told when certificates that were good cannot be read any more, and when changes of
	// files may be noticed late. Nil: nobody is.
	Log *slog.Logger

	transports *transports // nil: those of package client
}

// A remote is a management server that speaks gRPC.
type remote struct {
	target         string // as gRPC resolves it
	credentials    credentials.TransportCredentials
	perRPC         []credentials.PerRPCCredentials
	authority      string // "": as the target says
	delta, perType bool
}

// A poll is one that speaks REST.
type poll struct {
	url            string
	unix           string // the socket's path, "" for TCP
	tls            *tls.Config
	every, timeout time.Duration // 0: the transport's own
}

// A disk is a file, or all that may come to be one in a directory.
type disk struct {
	path, watched string
	log           *slog.Logger // nil: none
}

// transports make what reaches a server. Tests replace them.
type transports struct {
	grpc func(remote) (client.Transport, error)
	rest func(poll) (client.Transport, error)
	file func(disk) (client.Transport, error)
}

// A maker makes the transports of one bootstrap, and closes them all if one cannot be made.
type maker struct {
	Options
	file string
	made []client.Transport

	data     []byte                   // of the file, if it is of Envoy
	clusters map[string]staticCluster // that it has, by name
}

func (m *maker) of() *transports {
	if m.transports != nil {
		return m.transports
	}
	return &real
}

// add keeps a transport that was made.
func (m *maker) add(t client.Transport, err error, at string) (client.Transport, error) {
	if err != nil {
		return nil, m.errorf(at, "%w", err)
	}
	m.made = append(m.made, t)
	return t, nil
}

func (m *maker) close() {
	for _, t := range m.made {
		_ = t.Close() // no stream is open
	}
}

// errorf returns an error of the field at a path.
func (m *maker) errorf(at, format string, args ...any) error {
	if at != "" {
		at += ": "
	}
	return fmt.Errorf("%s: %s"+format, slices.Concat([]any{m.file, at}, args)...)
}

// "xds.config.resource-in-sotw": the client understands resources in the protocol's Resource,
// also in SotW. It is said by who reads the bootstrap, not by the bootstrap.
const wrapped = "xds.config.resource-in-sotw"

// sign adds what the client itself says in its node.
func (o *Options) sign(n *xds.Node) {
	if n.UserAgentName, n.UserAgentVersion = o.UserAgent, o.UserAgentVersion; n.UserAgentName == "" {
		n.UserAgentName = "chancery"
		if n.UserAgentVersion == "" {
			n.UserAgentVersion = version()
		}
	}
	if !slices.Contains(n.ClientFeatures, wrapped) {
		n.ClientFeatures = append(n.ClientFeatures, wrapped)
	}
}

const module = "github.com/chancery-xds/chancery"

// version returns the version of this module, "" if it is not known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "(devel)" {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// A bearer adds metadata to each call: a token, or what a bootstrap says.
type bearer struct {
	md     map[string]string
	secure bool // is sent over TLS only
}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return maps.Clone(b.md), nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (b bearer) RequireTransportSecurity() bool { return b.secure }
