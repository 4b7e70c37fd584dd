// Package bootstrap reads the bootstrap files of gRPC ([GRPC], [FromEnv]) and Envoy ([Envoy]) and
// returns a [client.Config]. It also reads a ConfigSource inside a resource ([EnvoyConfig.Source],
// [GRPCConfig.Source]).
//
// The package reads the bootstrap and the certificate files. It starts no goroutine and does not
// connect: a transport connects when its first stream opens. Each error names the file and the
// field. No error contains the value of a field that may be a secret.
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

// Options are settings that a bootstrap file does not contain. The zero value is ready to use.
type Options struct {
	// Credentials adds kinds of channel credentials to insecure and tls, by their name in a bootstrap.
	// For "google_default", which needs Google's libraries, a program can return credentials of
	// google.golang.org/grpc/credentials/google. This package does not link these libraries.
	Credentials map[string]func(config json.RawMessage) (credentials.TransportCredentials, []credentials.PerRPCCredentials, error)

	// UserAgent and UserAgentVersion describe the program in the node. If UserAgent is empty, the
	// user agent is "chancery", with the version of this module if known.
	UserAgent, UserAgentVersion string

	// Log receives a line when a certificate file cannot be read any more, and when changes of files
	// may be noticed late. Nil: nothing is logged.
	Log *slog.Logger

	makers *transportMakers // nil: defaultMakers
}

// A grpcServer is a management server that is reached over gRPC.
type grpcServer struct {
	target         string // a gRPC target
	credentials    credentials.TransportCredentials
	perRPC         []credentials.PerRPCCredentials
	authority      string // "": the one of the target
	delta, perType bool
}

// A restServer is a management server that is polled over REST.
type restServer struct {
	url            string
	unix           string // path of the unix socket; "": TCP
	tls            *tls.Config
	every, timeout time.Duration // 0: the transport's default
}

// A fileSource is a file, or a file with a watched directory.
type fileSource struct {
	path, watched string
	log           *slog.Logger // nil: nothing is logged
}

// transportMakers create transports. Tests replace them.
type transportMakers struct {
	grpc func(grpcServer) (client.Transport, error)
	rest func(restServer) (client.Transport, error)
	file func(fileSource) (client.Transport, error)
}

// A maker creates the transports of one bootstrap, and closes them all if one of them fails.
type maker struct {
	Options
	file   string
	opened []client.Transport

	data     []byte                   // the bytes of Envoy's bootstrap
	clusters map[string]staticCluster // its static clusters by name
}

func (m *maker) transports() *transportMakers {
	if m.makers != nil {
		return m.makers
	}
	return &defaultMakers
}

// add keeps a new transport, or returns the error of creating it.
func (m *maker) add(t client.Transport, err error, at string) (client.Transport, error) {
	if err != nil {
		return nil, m.errorf(at, "%w", err)
	}
	m.opened = append(m.opened, t)
	return t, nil
}

func (m *maker) close() {
	for _, t := range m.opened {
		_ = t.Close() // no stream is open yet
	}
}

// errorf returns an error with the file and the path of a field.
func (m *maker) errorf(at, format string, args ...any) error {
	if at != "" {
		at += ": "
	}
	return fmt.Errorf("%s: %s"+format, slices.Concat([]any{m.file, at}, args)...)
}

// "xds.config.resource-in-sotw": the client accepts resources in the protocol's Resource wrapper also
// in SotW. The program supports this, whatever its bootstrap contains.
const resourceInSotW = "xds.config.resource-in-sotw"

// completeNode adds the user agent and features of this client to the node.
func (o *Options) completeNode(n *xds.Node) {
	n.UserAgentName, n.UserAgentVersion = o.UserAgent, o.UserAgentVersion
	if n.UserAgentName == "" {
		n.UserAgentName = "chancery"
		if n.UserAgentVersion == "" {
			n.UserAgentVersion = version()
		}
	}
	if !slices.Contains(n.ClientFeatures, resourceInSotW) {
		n.ClientFeatures = append(n.ClientFeatures, resourceInSotW)
	}
}

const module = "github.com/chancery-xds/chancery"

// version returns the version of this module, or "" if it is unknown.
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

// A bearer adds metadata to each call: a token, or initial_metadata of a bootstrap.
type bearer struct {
	md     map[string]string
	secure bool // require TLS
}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return maps.Clone(b.md), nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (b bearer) RequireTransportSecurity() bool { return b.secure }
