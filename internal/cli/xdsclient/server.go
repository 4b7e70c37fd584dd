package xdsclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
	internalrefs "github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	"github.com/chancery-xds/chancery/xds"
)

// Scheme begins the URL of an xDS server.
const Scheme = "xds://"

// xdsPort is the port of a server whose URL has none.
const xdsPort = "18000"

// FlagsTitle is the help's title for the flags of an xDS server.
const FlagsTitle = "xDS server"

// Flags are the flags of a command that is a client of an xDS server.
type Flags struct {
	NodeFlags
	Delta, ads, perType, rest bool
	secure                    bool
	files                     certs.ClientFiles
	serverName                string
	Timeout, settle           time.Duration // zero: the command does not wait
}

// Register adds the flags of the connection. It does not add the flags of the node, because some commands
// add these themselves, nor the flags of RegisterTimes, because only some commands need them.
func (x *Flags) Register(f *pflag.FlagSet) {
	cli.TitledFlags(f, FlagsTitle, func(f *pflag.FlagSet) {
		f.BoolVar(&x.Delta, "delta", false, "speak delta (incremental) xDS, not SotW (state of the world)")
		f.BoolVar(&x.ads, "ads", false, "one stream for all types (ADS); this is the default")
		f.BoolVar(&x.perType, "per-type", false, "a stream for each type")
		f.BoolVar(&x.rest, "rest", false, "poll over REST-JSON instead of gRPC: the address is that of the server's REST, such as --rest-listen")
		f.BoolVar(&x.secure, "tls", false, "use TLS, with the system's CAs unless --tls-ca names another; without TLS flags the connection is in plain text")
		f.StringVar(&x.files.CA, "tls-ca", "", "`FILE` with the CA of the server's certificate; turns TLS on, as do the flags below")
		f.StringVar(&x.files.Cert, "tls-cert", "", "`FILE` with the client's certificate (mutual TLS)")
		f.StringVar(&x.files.Key, "tls-key", "", "`FILE` with its private key")
		f.StringVar(&x.serverName, "tls-server-name", "", "`NAME` in the server's certificate, if it differs from the host")
	})
	cli.ClientVariables(f)
}

// RegisterTimes adds the flags for the time to wait for an answer.
func (x *Flags) RegisterTimes(f *pflag.FlagSet) {
	f.DurationVar(&x.Timeout, "timeout", 5*time.Second, "`time` to wait for an xDS server's next answer")
	f.DurationVar(&x.settle, "settle", 500*time.Millisecond, "`time` without new resources after which an answer in several parts counts as complete")
}

// FollowRefsFlag adds --follow.
func FollowRefsFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "follow", false, "also get the resources that these refer to: routes of a listener, clusters of routes, endpoints, secrets")
}

// NackFlag adds --nack.
func NackFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "nack", "", "reject each response with this `MESSAGE`, and print the requests and responses")
}

// inURL has the flags that the query of a URL may contain. A flag in the query applies only to the URL's
// server, and overrides the command line.
var inURL = []string{"node", "cluster", "node-json", "delta", "per-type", "rest", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name"}

// A Server is an xDS server, with the flags for a connection to this server.
type Server struct {
	Flags
	at       listen.Address
	Text     string          // URL of the server, without the query
	Response xds.MemoryLimit // of a response; zero: the default of package client
}

// Server returns the server of a URL. All errors are errors of usage.
func (x *Flags) Server(arg string) (*Server, error) {
	rest, is := strings.CutPrefix(arg, Scheme)
	if !is {
		return nil, fmt.Errorf("%q is not the URL of an xDS server: write xds://HOST:PORT", arg)
	}
	rest, query, _ := strings.Cut(rest, "?")
	s := &Server{Flags: *x}
	var err error
	s.at, err = xdsAddress(rest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	s.Text = Scheme + s.at.String()
	if err := s.setQuery(query); err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	return s, s.check()
}

// xdsAddress parses the address to connect to. An unspecified address, such as 0.0.0.0, means this
// machine.
func xdsAddress(s string) (listen.Address, error) {
	if s == "" {
		return listen.Address{}, errors.New("the host is missing")
	}
	if path, is := strings.CutPrefix(s, "/"); is {
		return listen.Address{}, fmt.Errorf("the host is missing: did you mean xds://unix:/%s?", path)
	}
	if !strings.HasPrefix(s, "unix:") {
		s = strings.TrimSuffix(s, "/")
		if bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"); !strings.Contains(s, ":") || strings.HasSuffix(s, "]") && bare != s {
			s += ":" + xdsPort
		}
	}
	a, err := listen.Parse(s)
	switch {
	case err != nil:
		return a, err
	case a.Network == "tcp" && a.Port == 0:
		return a, errors.New("port 0 means any free port: give the port that the server has logged")
	case a.Any():
		a.Host = "127.0.0.1"
	}
	return a, nil
}

// setQuery sets the flags in the query of a URL.
func (s *Server) setQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	asGiven := s.Flags
	s.NodeFlags.Register(own)
	s.Flags.Register(own)
	s.Flags = asGiven // Register has replaced the given flags by defaults
	if values.Has("node") || values.Has("cluster") || values.Has("node-json") {
		s.NodeFlags = NodeFlags{}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(inURL, key) {
			return fmt.Errorf("%q: after the ? there may be %s", key, strings.Join(inURL, ", "))
		}
		value := values.Get(key)
		if own.Lookup(key).Value.Type() == "bool" {
			value = cmp.Or(value, "true")
		}
		if err := own.Set(key, value); err != nil {
			return fmt.Errorf("%s: %w", key, cli.ExplainValueError(err))
		}
	}
	return nil
}

func (s *Server) check() error {
	n := 0
	for _, given := range []bool{s.ads, s.perType, s.rest} {
		if given {
			n++
		}
	}
	switch {
	case n > 1:
		return errors.New("--ads, --per-type and --rest: give one of them")
	case s.rest && s.Delta:
		return errors.New("--rest and --delta: REST has no delta")
	case s.rest && s.at.Network == "unix":
		return errors.New("--rest: must be HOST:PORT, not a unix socket")
	case (s.files.Cert == "") != (s.files.Key == ""):
		return errors.New("--tls-cert and --tls-key: give both or none")
	case s.Timeout < 0:
		return errors.New("--timeout: must be 0 or more")
	case s.settle < 0:
		return errors.New("--settle: must be 0 or more")
	}
	return s.NodeFlags.Check()
}

// tls returns the configuration of TLS, or nil for a connection in plain text. The log may be nil.
func (s *Server) tls(log *slog.Logger) (*tls.Config, error) {
	if !s.secure && s.files == (certs.ClientFiles{}) && s.serverName == "" {
		return nil, nil
	}
	c, err := s.files.Config(log)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	c.ServerName = s.serverName
	if s.rest {
		c.NextProtos = nil // net/http sets these protocols itself
	}
	return c, nil
}

// Node returns the node of the client. The default ID is the host name, because some servers reject a
// node without an ID.
func (s *Server) Node(stdin io.Reader, types *envoy.Types) (*xds.Node, error) {
	n, err := s.NodeFlags.Node(stdin, types)
	if err != nil {
		return nil, err
	}
	if n.ID == "" && s.JSON == "" {
		n.ID, _ = os.Hostname()
	}
	if n.UserAgentName == "" {
		n.UserAgentName, n.UserAgentVersion = "chancery", cli.Version()
	}
	return n, nil
}

// Options returns the options of a fetch from the server.
func (s *Server) Options(cmd *cobra.Command, types *envoy.Types) (fetch.Options, error) {
	o := fetch.Options{Timeout: s.Timeout, Settle: s.settle}
	var err error
	o.Node, err = s.Node(cmd.InOrStdin(), types)
	if err != nil {
		return o, err
	}
	o.Transport, err = s.Transport(types)
	return o, err
}

// References returns a function that lists the references of a resource. The list is nil if the type of
// the message is unknown.
func References(types *envoy.Types) func(*xds.Resource) []xds.Ref {
	return func(r *xds.Resource) []xds.Ref {
		m, err := Unmarshal(types, r)
		if err != nil {
			return nil
		}
		return internalrefs.OfResource(types, m)
	}
}

// AllTypes returns the wildcard subscriptions of a proxy: all listeners and all clusters.
func AllTypes() []fetch.Asked {
	return []fetch.Asked{{Type: xds.Cluster, Names: []string{xds.Wildcard}}, {Type: xds.Listener, Names: []string{xds.Wildcard}}}
}

// ParseQuestions parses the arguments that select resources: TYPE, TYPE/NAME, or a NAME of the
// preceding type. If an argument has a slash and its first part is not a type, the argument is a
// name.
func ParseQuestions(args []string) (all []fetch.Asked, err error) {
	for _, arg := range args {
		t, name, err := question(arg, len(all) == 0)
		switch {
		case err != nil:
			return nil, err
		case t == nil:
			last := &all[len(all)-1]
			last.Names = append(last.Names, name)
		case name != "":
			all = append(all, fetch.Asked{Type: t, Names: []string{name}})
		default:
			all = append(all, fetch.Asked{Type: t})
		}
	}
	for i := range all {
		if len(all[i].Names) == 0 {
			all[i].Names = []string{xds.Wildcard}
		}
	}
	return all, nil
}

// question returns the type and the name of an argument. One of both may be missing.
func question(arg string, first bool) (*xds.Type, string, error) {
	if arg == "" {
		return nil, "", errors.New(`"" is neither a type nor a name`)
	}
	t, name, err := cli.ParseTypeAndName(arg)
	if err == nil && (first || t.Known() || strings.HasPrefix(arg, cli.APITypes)) {
		if strings.HasSuffix(arg, "/") {
			return nil, "", fmt.Errorf("%s: the name is missing", arg)
		}
		return t, name, nil
	}
	if first {
		return nil, "", err
	}
	return nil, arg, nil
}

// Converse reports the steps between a client and a server until the command is interrupted or during has
// passed (0: no limit). It returns an error if the first connection fails. After the first connection,
// the client reconnects.
func (s *Server) Converse(cmd *cobra.Command, o fetch.Options, during time.Duration, report func(fetch.Step)) error {
	ctx, cancel := context.WithCancel(cli.Context(cmd))
	if during > 0 {
		ctx, cancel = context.WithTimeout(cli.Context(cmd), during)
	}
	defer cancel()
	heard := false
	for step, err := range fetch.Watch(ctx, o) {
		heard = heard || step.Response != nil
		switch {
		case err != nil:
			return cli.Fail(err, "")
		case step.End != nil && !heard:
			return s.endError(fetch.End{Type: step.Type, Err: step.End})
		}
		report(step)
	}
	if !heard && s.Timeout > 0 {
		return s.noAnswer("anything")
	}
	return nil
}
