package xdsclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

// xdsPort is that of a server whose URL has none.
const xdsPort = "18000"

// FlagsTitle is the title of the flags for one.
const FlagsTitle = "xDS server"

// An Flags says how a client of an xDS server asks it.
type Flags struct {
	NodeFlags
	Delta, ads, perType, rest bool
	secure                    bool
	files                     certs.ClientFiles
	serverName                string
	Timeout, settle           time.Duration // zero: of a command that does not wait
}

// Register adds them, without the node's, which commands have for other reasons, too, and without
// how long to wait, which not all do.
func (x *Flags) Register(f *pflag.FlagSet) {
	cli.TitledFlags(f, FlagsTitle, func(f *pflag.FlagSet) {
		f.BoolVar(&x.Delta, "delta", false, "speak delta (incremental) xDS, not SotW (state of the world)")
		f.BoolVar(&x.ads, "ads", false, "one stream for all types (ADS); this is the default")
		f.BoolVar(&x.perType, "per-type", false, "a stream for each type")
		f.BoolVar(&x.rest, "rest", false, "poll over REST-JSON instead of gRPC: the address is that of the server's REST, such as --rest-listen")
		f.BoolVar(&x.secure, "tls", false, "use TLS, with the system's CAs unless --tls-ca names another; without TLS flags the connection is in plain text")
		f.StringVar(&x.files.CA, "tls-ca", "", "`FILE` with the CA of the server's certificate; turns TLS on, as the flags below")
		f.StringVar(&x.files.Cert, "tls-cert", "", "`FILE` with the client's certificate (mutual TLS)")
		f.StringVar(&x.files.Key, "tls-key", "", "`FILE` with its private key")
		f.StringVar(&x.serverName, "tls-server-name", "", "`NAME` in the server's certificate, if it differs from the host")
	})
	for _, flag := range []string{"tls-cert", "tls-key"} { // those of serve are the server's
		cli.Annotate(f.Lookup(flag), cli.OwnVariable, cli.VariablePrefix+"CLIENT_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
	}
}

// RegisterTimes adds the flags of how long to wait for an answer.
func (x *Flags) RegisterTimes(f *pflag.FlagSet) {
	f.DurationVar(&x.Timeout, "timeout", 5*time.Second, "`time` to wait for an xDS server's next answer")
	f.DurationVar(&x.settle, "settle", 500*time.Millisecond, "`time` without news after which an answer that may have more parts is whole")
}

// FollowRefsFlag adds --follow-refs.
func FollowRefsFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "follow", false, "get what the resources refer to, too: routes of a listener, clusters of routes, endpoints, secrets")
}

// NackFlag adds --nack.
func NackFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "nack", "", "refuse all that comes, with this `MESSAGE`, and print what client and server say to each other")
}

// inURL are the flags that a URL may have in its query: they are of that server, and win.
var inURL = []string{"node", "cluster", "node-json", "delta", "per-type", "rest", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name"}

// An Server is one that is asked.
type Server struct {
	Flags
	at   listen.Address
	Text string // its URL, without the query
}

// Server returns the server of a URL. Its errors are of usage.
func (x *Flags) Server(arg string) (*Server, error) {
	rest, is := strings.CutPrefix(arg, Scheme)
	if !is {
		return nil, fmt.Errorf("%q is not the URL of an xDS server: write xds://HOST:PORT", arg)
	}
	rest, query, _ := strings.Cut(rest, "?")
	s := &Server{Flags: *x}
	var err error
	if s.at, err = xdsAddress(rest); err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	s.Text = Scheme + s.at.String()
	if err := s.take(query); err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	return s, s.check()
}

// xdsAddress reads an address to dial: without a host it is this machine.
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

// take takes what a URL says of the server.
func (s *Server) take(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	asGiven := s.Flags
	s.NodeFlags.Register(own)
	s.Flags.Register(own)
	s.Flags = asGiven // the defaults of own are not those
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

// tls returns how the connection is encrypted; nil: it is not.
func (s *Server) tls() (*tls.Config, error) {
	if !s.secure && s.files == (certs.ClientFiles{}) && s.serverName == "" {
		return nil, nil
	}
	c, err := s.files.Config()
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	c.ServerName = s.serverName
	if s.rest {
		c.NextProtos = nil // net/http has its own
	}
	return c, nil
}

// Node returns who asks. A server may give nothing to who has no name.
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

// Options returns how to ask it.
func (s *Server) Options(cmd *cobra.Command, types *envoy.Types) (fetch.Options, error) {
	o := fetch.Options{Timeout: s.Timeout, Settle: s.settle}
	var err error
	if o.Node, err = s.Node(cmd.InOrStdin(), types); err != nil {
		return o, err
	}
	o.Transport, err = s.Transport(types)
	return o, err
}

// References returns what a resource refers to, as far as its messages are known.
func References(types *envoy.Types) func(*xds.Resource) []xds.Ref {
	return func(r *xds.Resource) []xds.Ref {
		m, err := Unmarshal(types, r)
		if err != nil {
			return nil
		}
		return internalrefs.Of(types, m)
	}
}

// AllTypes is what a proxy asks for: all listeners and clusters, and what they refer to.
func AllTypes() []fetch.Asked {
	return []fetch.Asked{{Type: xds.Cluster, Names: []string{xds.Wildcard}}, {Type: xds.Listener, Names: []string{xds.Wildcard}}}
}

// ParseQuestions reads arguments that say what is asked for: TYPE, TYPE/NAME, and names of the type
// before them. What has a slash and no type before it is a name.
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

// question returns the type and the name in an argument; one of them may be missing.
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

// Converse tells of what happens between a client and a server, until the command is interrupted
// or the time is over; 0 is never. A server that cannot be reached is an error at first; later the
// client tries again.
func (s *Server) Converse(cmd *cobra.Command, o fetch.Options, during time.Duration, tell func(fetch.Step)) error {
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
			return s.ended(fetch.End{Type: step.Type, Err: step.End})
		}
		tell(step)
	}
	if !heard && s.Timeout > 0 {
		return s.silent("anything")
	}
	return nil
}
