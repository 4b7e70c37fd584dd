package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"
	described "google.golang.org/grpc/reflection/grpc_reflection_v1"

	authcerts "github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/auth/identity"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/listen/handshakes"
	"github.com/chancery-xds/chancery/server"
)

// listenFlags are the flags of the listeners of xDS.
type listenFlags struct {
	addresses  []string
	tls        authcerts.Files
	age        server.Age
	reflection bool

	parsed []listen.Address // the addresses, after check
}

// xdsListeners serve xDS over gRPC.
type xdsListeners struct {
	listenFlags

	certs      *authcerts.Source // nil: no TLS
	handshakes handshakes.Failures
	clients    *listen.Limit // limit of connections, shared with REST-JSON
	listeners  []net.Listener
	servers    []*grpc.Server
	stopping   sync.WaitGroup // counts the servers that stop after goAway
}

// flags registers the flags of all listeners but the admin API, and of their TLS.
func (f *listenFlags) flags(set *pflag.FlagSet, rest *string, insecureSecrets *bool, monitor *string) {
	set.StringSliceVar(&f.addresses, "listen", []string{"127.0.0.1:18000"}, "`HOST:PORT` or unix:///PATH to serve xDS on; may be repeated; 0.0.0.0 means all interfaces, port 0 any free port")
	set.Lookup("listen").DefValue = "127.0.0.1:18000" // without brackets, for the help
	set.StringVar(rest, "rest-listen", "", "`HOST:PORT` or unix:///PATH to serve xDS over REST-JSON on; empty: no REST-JSON")
	set.StringVar(monitor, "metrics-listen", "", "`HOST:PORT` to serve /metrics, /healthz and /readyz on, and profiles (/debug/pprof) if only this machine can reach it; empty: none of them")
	set.StringVar(&f.tls.Cert, "tls-cert", "", "`FILE` with the server's certificate, in PEM; turns TLS on")
	set.StringVar(&f.tls.Key, "tls-key", "", "`FILE` with the private key of --tls-cert")
	set.StringVar(&f.tls.ClientCA, "client-ca", "", "`FILE` with the CA that the clients' certificates must chain to (mutual TLS)")
	set.BoolVar(insecureSecrets, "insecure-secrets", false, "allow sending secrets to other machines in plain text, or to clients without certificates")
	set.BoolVar(&f.reflection, "reflection", false, "serve gRPC reflection, which lists the services for tools such as grpcurl")
}

// ageFlags registers the flags for the age of connections.
func (f *listenFlags) ageFlags(set *pflag.FlagSet) {
	set.DurationVar(&f.age.Max, "max-connection-age", 0, "`time`, plus a random part of up to a half, after which a stream and its connection are closed, so that clients spread over replicas; 0: never")
	set.DurationVar(&f.age.Grace, "max-connection-age-grace", 10*time.Second, "`time` that such a stream waits for the ACKs of its client before it is closed")
}

// check parses the addresses; it returns usage errors.
func (f *listenFlags) check() error {
	if len(f.addresses) == 0 {
		return errors.New("--listen: an address is missing")
	}
	for _, s := range f.addresses {
		a, err := listen.Parse(s)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		f.parsed = append(f.parsed, a)
	}
	switch {
	case f.tls.Configured() && (f.tls.Cert == "" || f.tls.Key == ""):
		return errors.New("TLS needs both --tls-cert and --tls-key; --client-ca needs them, too")
	case f.age.Max > 0 && f.age.Max < time.Second:
		return errors.New("--max-connection-age: must be at least 1s, or 0 for no maximum: otherwise clients only reconnect")
	}
	return errors.Join(timeFlag{"max-connection-age", f.age.Max, 0, 365 * 24 * time.Hour}.check(), timeFlag{"max-connection-age-grace", f.age.Grace, 0, maxTime}.check())
}

// secure reports whether a listener uses TLS. A unix socket does not: the mode of its file protects
// it.
func (f *listenFlags) secure(a listen.Address) bool { return f.tls.Configured() && a.Network != "unix" }

// plain returns an address on which others could read the traffic, or "".
func (f *listenFlags) plain() string {
	for _, a := range f.parsed {
		if !f.secure(a) && !a.Loopback() {
			return a.String()
		}
	}
	return ""
}

// open listens on all addresses.
func (f *xdsListeners) open(log *slog.Logger, types *envoy.Types, xds *server.Server, clients *listen.Limit, limits []grpc.ServerOption) error {
	f.clients = clients
	options := append(append(server.GRPCOptions(), f.age.GRPCOption()), limits...)
	var secured credentials.TransportCredentials // nil: no TLS
	if f.tls.Configured() {
		var err error
		f.certs, err = authcerts.Open(f.tls, log)
		if err != nil {
			return cli.Fail(err, "")
		}
		secured = f.handshakes.Credentials(identity.Expiring(credentials.NewTLS(f.certs.Config())))
	}
	for _, a := range f.parsed {
		l, err := a.Open(context.Background())
		if err != nil {
			f.close()
			return cli.Fail(err, "--listen chooses another address")
		}
		f.listeners = append(f.listeners, clients.On(l))
		var creds credentials.TransportCredentials
		switch {
		case f.secure(a):
			creds = secured
		case a.Network == "unix":
			creds = identity.UnixCredentials()
		}
		g := grpc.NewServer(append(slices.Clip(options), grpc.Creds(xds.Credentials(creds)), grpc.InTapHandle(xds.Tap))...)
		if err := xds.Register(g); err != nil {
			f.close()
			return err
		}
		if f.reflection {
			bound := xds.Limited(g).(reflection.GRPCServer)
			described.RegisterServerReflectionServer(bound, reflection.NewServerV1(reflection.ServerOptions{Services: bound, DescriptorResolver: envoy.Linked{Types: types}}))
		}
		f.servers = append(f.servers, g)
	}
	return nil
}

// serve accepts connections until a listener fails or the listeners are closed. The returned channel
// receives the failures.
func (f *xdsListeners) serve() <-chan error {
	failed := make(chan error, len(f.servers))
	for i, l := range f.listeners {
		go func() { failed <- f.servers[i].Serve(l) }()
	}
	return failed
}

// at returns the addresses of the listeners, with the ports that the system chose.
func (f *xdsListeners) at() string {
	var all []string
	for i, l := range f.listeners {
		if f.parsed[i].Network == "unix" {
			all = append(all, f.parsed[i].String())
		} else {
			all = append(all, l.Addr().String())
		}
	}
	return strings.Join(all, ", ")
}

// goAway accepts no more connections. It sends GOAWAY on the open connections, so that their clients
// open the next stream on another server. A connection ends with its streams.
func (f *xdsListeners) goAway() {
	for _, g := range f.servers {
		f.stopping.Go(g.GracefulStop)
	}
}

// goAwayDelay is the time that clients have to receive GOAWAY before the server refuses streams.
const goAwayDelay = 300 * time.Millisecond

// finishTimeout is the time in which connections without xDS streams must end.
const finishTimeout = time.Second

// finish waits until the connections have ended, after their streams. The order lets the last
// messages of a stream reach its client. Watches of health and reflection do not end by themselves,
// and a connection without a handshake lasts 10 s. finish closes the remaining connections after
// finishTimeout, or when ctx is done.
func (f *xdsListeners) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	for _, g := range f.servers {
		defer context.AfterFunc(ctx, g.Stop)()
	}
	defer context.AfterFunc(ctx, f.clients.Cut)()
	f.stopping.Wait()
}

func (f *xdsListeners) close() {
	f.clients.Cut() // Stop would wait for connections without a handshake
	for _, g := range f.servers {
		g.Stop()
	}
	for _, l := range f.listeners { // the servers of these listeners may not serve yet
		_ = l.Close()
	}
}
