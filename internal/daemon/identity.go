package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/auth/identity"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// anyNode is the value of --access with which every identity may be every node.
const anyNode = "any"

// A watchFunc opens a watch of the configuration that a client sees.
type watchFunc func(context.Context, *xds.Node) (server.HistoryWatch, error)

// Watch implements [server.Source].
func (w watchFunc) Watch(ctx context.Context, n *xds.Node) (server.HistoryWatch, error) {
	return w(ctx, n)
}

// watchFuncOf converts a source of any type of watches.
func watchFuncOf[W server.HistoryWatch](of server.Source[W]) watchFunc {
	return func(ctx context.Context, n *xds.Node) (server.HistoryWatch, error) { return of.Watch(ctx, n) }
}

// identityFlags are the flags that decide which client may be which node. Without them and
// without --client-ca, every client may be every node.
type identityFlags struct {
	access    string // the file with the rules, or anyNode; "": the default rules
	issuer    string
	audiences []string
	jwks      string

	bound bool // the identity of a client decides which nodes it may be
}

// An identityFinder finds the identity of each stream, and denies the nodes that this identity may
// not be.
type identityFinder struct {
	identityFlags

	rules  *rulesFile[access.Policy]
	finder identity.Finder
	of     watchFunc
	source *access.Source[server.HistoryWatch] // nil: identities are not bound to nodes

	log   *slog.Logger
	lines dedup.Counter
	note  func(api.Event) // gets the denials for the audit, limited as in the log; nil: no admin API

	turnedAway func(api.TurnedAway) // gets every denial; nil: no admin API
}

func (i *identityFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&i.access, "access", "", "`FILE` with rules about which client may be which node; any: every client may be every node. If --access is not set and --client-ca or --jwt-issuer is, the node id must be a name in the client's certificate or token")
	f.StringVar(&i.issuer, "jwt-issuer", "", "`ISSUER` (iss) whose tokens clients may send (Authorization: Bearer TOKEN); needs --jwt-audience and --jwks")
	f.StringSliceVar(&i.audiences, "jwt-audience", nil, "`AUDIENCE` (aud) that tokens must be for; may be repeated")
	f.StringVar(&i.jwks, "jwks", "", "`FILE` or https:// URL with the issuer's public keys (JSON Web Key Set)")
}

// check returns a usage error.
func (i *identityFlags) check(clientCA string) error {
	given := i.issuer != "" || len(i.audiences) > 0 || i.jwks != ""
	switch {
	case given && (i.issuer == "" || len(i.audiences) == 0 || i.jwks == ""):
		return errors.New("tokens need all of --jwt-issuer, --jwt-audience and --jwks")
	case strings.Contains(i.jwks, "://"):
		if _, err := identity.CheckURL(i.jwks); err != nil {
			return err
		}
	}
	if slices.Contains(i.audiences, "") {
		return errors.New("--jwt-audience: an audience is empty")
	}
	i.bound = i.access != anyNode && (i.access != "" || clientCA != "" || given)
	return nil
}

// open reads the rules and the keys. If they are invalid, the start fails. The argument plain is an
// address without TLS, or "".
func (i *identityFinder) open(ctx context.Context, log *slog.Logger, of watchFunc, plain string) error {
	i.log, i.of = log, of
	if i.issuer != "" {
		keys, err := identity.OpenKeys(ctx, i.jwks, log)
		if err != nil {
			return cli.Fail(err, "--jwks names the file or URL of the issuer's public keys")
		}
		i.finder.Tokens = &identity.Tokens{Issuer: i.issuer, Audiences: i.audiences, Keys: keys}
		if plain != "" {
			log.Warn("tokens are sent in plain text: every machine on the path can use them", "listen", plain, "hint", "--tls-cert, --tls-key")
		}
	}
	if !i.bound {
		return nil
	}
	policy := access.Default()
	if i.access != "" {
		i.rules = accessRules(i.access)
		var err error
		policy, err = i.rules.load(log, "--access names the file with the rules, or is \"any\"")
		if err != nil {
			return err
		}
	}
	st := i.of
	i.source = access.New(st, policy, access.Options{Identity: identityOf, Denied: i.denied, Group: groups.BaseOf})
	return nil
}

// run keeps rules and keys up to date until ctx is done.
func (i *identityFinder) run(ctx context.Context, start func(func())) {
	if t := i.finder.Tokens; t != nil {
		start(func() { t.Keys.Run(ctx) })
	}
	if i.source != nil && i.access != "" {
		start(func() { i.rules.run(ctx, i.log, i.source.SetPolicy) })
	}
}

// Watch implements [server.Source].
func (i *identityFinder) Watch(ctx context.Context, node *xds.Node) (server.Watch, error) {
	client, err := i.finder.Find(ctx)
	if err == nil && i.source == nil && i.finder.Tokens != nil && client.Kind == access.None {
		err = errors.New("the client has neither a certificate nor a token")
	}
	switch {
	case errors.Is(err, identity.ErrNoKeys):
		return nil, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		d := &access.Denied{Reason: err.Error(), Unauthenticated: true}
		i.denied(ctx, client, node, d)
		return nil, loggedDenial{d}
	case i.source == nil, i.access == "" && client.Kind == access.Unix: // the mode of the socket file decides who may connect
		w, err := i.of.Watch(ctx, node)
		switch {
		case err != nil:
			return nil, err
		case client.Kind == access.None:
			return w, nil
		}
		return identifiedWatch{w, &client}, nil
	}
	w, err := i.source.Watch(context.WithValue(ctx, identityKey{}, client), node)
	if err != nil {
		return nil, err
	}
	return identifiedWatch{w, &client}, nil
}

// A loggedDenial is a denial that the identityFinder has already logged.
type loggedDenial struct{ *access.Denied }

// Told reports that the server need not log the denial.
func (loggedDenial) Told() bool { return true }

// An identifiedWatch is a watch whose stream has a known identity.
type identifiedWatch struct {
	server.HistoryWatch
	client *access.Identity
}

// Identity implements [server.IdentityWatch].
func (k identifiedWatch) Identity() fmt.Stringer {
	if k.client.Kind == access.None {
		return nil
	}
	return k.client
}

// Ring sends a signal on the channel C of the watch.
func (k identifiedWatch) Ring() {
	if r, ok := k.HistoryWatch.(interface{ Ring() }); ok {
		r.Ring()
	}
}

type identityKey struct{}

// identityOf returns the identity that was found for a stream.
func identityOf(ctx context.Context) (access.Identity, error) {
	client, _ := ctx.Value(identityKey{}).(access.Identity)
	return client, nil
}

// denied audits a denial: the identity, the node, the address and the rule.
func (i *identityFinder) denied(ctx context.Context, client access.Identity, node *xds.Node, why *access.Denied) {
	if why.Unauthenticated && !client.Expires.IsZero() { // the identity was valid and has expired
		i.log.Info("client's identity expired: its stream ends", "identity", logText(client.String()), "expired", client.Expires.UTC().Format(time.RFC3339))
		return
	}
	id, from := "", "unix"
	if node != nil {
		id = logText(node.ID)
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = cmp.Or(p.Addr.String(), from)
	}
	code := codes.PermissionDenied
	if why.Unauthenticated {
		code = codes.Unauthenticated
	}
	attrs := []any{"identity", cmp.Or(logText(client.String()), "none"), "node", id, "peer", from, "code", code.String(), "error", why.Error()}
	if why.Place != "" {
		attrs = append(attrs, "rule", why.Place)
	}
	if i.access == "" {
		attrs = append(attrs, "hint", "--access names rules, or is \"any\"")
	}
	warn := func(more ...any) {
		i.log.Warn("client denied: its identity may not be this node", append(attrs, more...)...)
	}
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		host = from
	}
	text := why.Error()
	if name := client.String(); name != (access.Identity{}).String() { // the reason does not name the identity
		text = logText(name) + ": " + text
	}
	note := func(times int) { // limited like the log, so that the denials of one client do not displace other events
		if i.note != nil {
			i.note(api.Event{At: time.Now(), Kind: "deny", Node: id, Peer: from, Text: text, Count: times})
		}
	}
	if i.lines.Allow(host, fmt.Sprint(client.String(), id, why.Error()), 1, func(n int, _ []string) { warn("repeated", n); note(n) }) {
		warn()
		note(1)
	}
	if i.turnedAway != nil {
		i.turnedAway(api.TurnedAway{Kind: "denied", Node: id, From: from, Text: why.Error()})
	}
}

// logText shortens a text from a client for the log, and makes it valid UTF-8.
func logText(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
