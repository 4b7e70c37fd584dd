package etcdkv

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// Options are the place of an etcd, and the credentials.
type Options struct {
	Endpoints []string // host:port of its members
	Prefix    string   // of all keys, without slashes at its start and end

	TLS      *tls.Config // nil: none
	Username string      // "": no authentication
	Password string

	// Log gets a line if the etcd goes back to an earlier revision. nil: slog.Default().
	Log *slog.Logger

	// Timeout is how long a request may take. 0: 5 s.
	Timeout time.Duration

	dial []grpc.DialOption // set by tests
}

// Parse parses etcd://HOST:PORT,HOST:PORT/PREFIX. The default port is 2379. It refuses a user or a password, because
// other users of the machine can see the arguments of programs.
func Parse(text string) (Options, error) {
	rest, ok := strings.CutPrefix(text, "etcd://")
	if !ok {
		return Options{}, fmt.Errorf("%q does not begin with etcd://", text)
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(hosts, "@") {
		return Options{}, errors.New("an etcd URL must not contain a user or a password: other users can see the arguments of programs")
	}
	o := Options{Prefix: strings.Trim(prefix, "/")}
	if o.Prefix == "" || strings.ContainsAny(o.Prefix, "?#") || slices.Contains(strings.Split(o.Prefix, "/"), "") {
		return Options{}, fmt.Errorf("%q: want a prefix of the keys, as in etcd://HOST:PORT/PREFIX", text)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("etcd://" + host)
		if err != nil || u.Hostname() == "" || u.Host != host {
			return Options{}, fmt.Errorf("%q: %q is not a host with a port", text, host)
		}
		o.Endpoints = append(o.Endpoints, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "2379")))
	}
	return o, nil
}

// String returns the options as a URL that [Parse] reads.
func (o Options) String() string { return "etcd://" + strings.Join(o.Endpoints, ",") + "/" + o.Prefix }
