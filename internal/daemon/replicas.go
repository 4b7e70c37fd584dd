package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/peers"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// replicaFlags are the flags for the other servers of a store.
type replicaFlags struct {
	address string
	files   certs.ClientFiles
}

// A replicaList announces this server to the other servers of its store, and asks them for their state.
type replicaList struct {
	replicaFlags

	id    string // ID of this process; "": no store
	since time.Time
	all   *peers.Replicas // nil: the store does not list its servers
}

func (r *replicaFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&r.address, "replica-address", "", "`HOST:PORT` at which the other servers of the store reach the admin API of this one; without it: the first --admin-listen, with the name of the machine if that is on all addresses")
	f.StringVar(&r.files.CA, "replica-ca", "", "`FILE` with the CA of the certificates of the other servers' admin APIs; without it: --admin-client-ca, or the system's CAs, and then no server gets the token of --admin-token-file")
	f.StringVar(&r.files.Cert, "replica-cert", "", "`FILE` with the client certificate for the other servers; without it: --admin-tls-cert")
	f.StringVar(&r.files.Key, "replica-key", "", "`FILE` with the private key of --replica-cert")
}

// check returns a usage error, and fills in the defaults from the flags of the admin API.
func (r *replicaFlags) check(store string, admin *adminFlags) error {
	switch {
	case store == "" && (r.address != "" || r.files != certs.ClientFiles{}):
		return errors.New("--replica-address, --replica-ca, --replica-cert and --replica-key need --store")
	case (r.files.Cert == "") != (r.files.Key == ""):
		return errors.New("--replica-cert and --replica-key: give both or none")
	}
	if r.address != "" {
		host, port, err := net.SplitHostPort(r.address)
		if err != nil || host == "" || port == "" || port == "0" || net.ParseIP(host).IsUnspecified() {
			return fmt.Errorf("--replica-address: %q: want HOST:PORT", r.address)
		}
	}
	r.files.CA = cmp.Or(r.files.CA, admin.tls.ClientCA)
	if r.files.Cert == "" {
		r.files.Cert, r.files.Key = admin.tls.Cert, admin.tls.Key
	}
	return nil
}

var notInID = regexp.MustCompile(`[^a-z0-9]+`)

// A self describes this server for the other servers of its store.
type self struct {
	admin   func(address, host string) string // the URL of its admin API
	token   func() (string, error)            // the token of the admin APIs; nil: they need none
	streams func() int                        // number of open streams
	writes  func() time.Time                  // the time since when this server writes to the store; zero: it does not
	served  func() revisions.State            // the served state
}

// name gives this process its ID among the servers of its store.
func (r *replicaList) name(host string) {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := strings.Trim(notInID.ReplaceAllString(strings.ToLower(host), "-"), "-")
	r.id, r.since = strings.TrimPrefix(name[:min(len(name), 63)]+"-"+hex.EncodeToString(random[:]), "-"), time.Now()
}

// open lists the servers of the store, if the engine supports it.
func (r *replicaList) open(log *slog.Logger, e revisions.Engine, own self) {
	host, _ := os.Hostname()
	r.name(host)
	engine, ok := e.(revisions.Announcer)
	if !ok {
		return
	}
	asking := peers.Asking{TLS: r.files, Token: own.token, Log: log}
	r.all = peers.New(peers.Options{Engine: engine, Ask: asking, Log: log, Self: func() peers.About {
		a := peers.About{ID: r.id, Admin: own.admin(r.address, host), Host: host, Version: cli.Version(), Since: r.since, Streams: own.streams(), Writes: own.writes()}
		if is := own.served(); is.Number > 0 {
			a.Revision, a.Turns = is.Number.String(), is.Turns
		}
		return a
	}})
}

// run announces this server and follows the other servers until ctx is done.
func (r *replicaList) run(ctx context.Context) {
	if r.all != nil {
		r.all.Run(ctx)
	}
}

// urlFor returns the URL at which other servers reach the admin API; "" if they cannot. The argument
// at is --replica-address, and host is the name of the machine.
func (a *adminListeners) urlFor(at, host string) string {
	scheme := "http://"
	if a.certs != nil {
		scheme = "https://"
	}
	if at != "" {
		return scheme + at
	}
	for _, l := range a.opened() {
		tcp, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			continue
		}
		name := tcp.IP.String()
		if tcp.IP.IsUnspecified() {
			name = host
		}
		for _, p := range a.parsed { // prefer the host in the flag, because a certificate may contain it
			if p.Network == "tcp" && !p.Any() && int(p.Port) == tcp.Port {
				name = p.Host
			}
		}
		return scheme + net.JoinHostPort(name, strconv.Itoa(tcp.Port))
	}
	return ""
}
