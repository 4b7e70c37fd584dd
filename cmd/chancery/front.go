package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"

	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/tlsfiles"
	"github.com/chancery-xds/chancery/server"
)

// A front is where xDS is served: its addresses, and how.
type front struct {
	addresses []string
	tls       tlsfiles.Files
	age       time.Duration // of connections, about; 0: they may grow old
	grace     time.Duration

	parsed    []listen.Address
	certs     *tlsfiles.Source // nil: no TLS
	listeners []net.Listener
	servers   []*grpc.Server
}

// check parses the addresses; an error is one of usage.
func (f *front) check() error {
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
		return errors.New("TLS wants both --tls-cert and --tls-key; --client-ca goes with them")
	case f.age < 0:
		return errors.New("--max-connection-age is negative")
	case f.grace <= 0:
		return errors.New("--max-connection-age-grace: streams of xDS never end by themselves: want more than zero")
	}
	return nil
}

// secure reports whether TLS protects a listener. On a unix socket the mode of
// its file does.
func (f *front) secure(a listen.Address) bool { return f.tls.Configured() && a.Network != "unix" }

// plain returns an address at which others may read what is sent, or "".
func (f *front) plain() string {
	for _, a := range f.parsed {
		if !f.secure(a) && !a.Loopback() {
			return a.String()
		}
	}
	return ""
}

// ages are the parts of the age that servers of one listener give their
// connections. gRPC varies each by a tenth: together that is the age ± 50 %, so
// that clients who came together do not come back together.
var ages = []float64{0.6, 0.8, 1, 1.2, 1.4}

// open listens on all addresses. The servers of one listener take turns.
func (f *front) open(log *slog.Logger, xds *server.Server, limits []grpc.ServerOption) error {
	options := append(server.GRPCOptions(), limits...)
	var secured []grpc.ServerOption
	if f.tls.Configured() {
		var err error
		if f.certs, err = tlsfiles.Open(f.tls, log); err != nil {
			return failure{err, ""}
		}
		secured = []grpc.ServerOption{grpc.Creds(credentials.NewTLS(f.certs.Config()))}
	}
	for _, a := range f.parsed {
		l, err := a.Open(context.Background())
		if err != nil {
			f.close()
			return failure{err, "--listen chooses another address"}
		}
		f.listeners = append(f.listeners, l)
		options := slices.Clip(options)
		if f.secure(a) {
			options = append(options, secured...)
		}
		for range f.perListener() {
			g := grpc.NewServer(append(slices.Clip(options), f.aging(len(f.servers))...)...)
			xds.Register(g)
			reflection.RegisterV1(g)
			f.servers = append(f.servers, g)
		}
	}
	return nil
}

func (f *front) perListener() int {
	if f.age == 0 {
		return 1
	}
	return len(ages)
}

// aging returns the options of the nth server.
func (f *front) aging(n int) []grpc.ServerOption {
	if f.age == 0 {
		return nil
	}
	k := server.Keepalive()
	k.MaxConnectionAge = time.Duration(float64(f.age) * ages[n%len(ages)])
	k.MaxConnectionAgeGrace = f.grace
	return []grpc.ServerOption{grpc.KeepaliveParams(k)}
}

// serve serves until a listener fails, which it tells, or the front is closed.
func (f *front) serve() <-chan error {
	failed := make(chan error, len(f.servers))
	n := f.perListener()
	for i, l := range f.listeners {
		for j, l := range turns(l, n) {
			go func() { failed <- f.servers[i*n+j].Serve(l) }()
		}
	}
	return failed
}

// at returns the addresses that are listened on, ports chosen by the system
// included.
func (f *front) at() string {
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

func (f *front) close() {
	for _, g := range f.servers {
		g.Stop()
	}
	for _, l := range f.listeners { // of servers that have not begun
		_ = l.Close()
	}
}
