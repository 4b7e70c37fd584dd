package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/text"
)

// A need is the role that a route requires.
type need struct {
	role roles.Role // None: the route is for everybody
	all  bool       // for all groups; otherwise for at least one, and the handler checks the groups of the request
}

var (
	view       = need{roles.View, false}
	operate    = need{roles.Operate, false}
	operateAll = need{roles.Operate, true}
	commit     = need{roles.Commit, false}
)

// needOfCall returns the need of a gRPC method. CSDS and reflection only show.
func needOfCall(r *http.Request) need {
	if r.URL.Path == registerMethod {
		return commit
	}
	return view
}

// A caller is the sender of a request: its name, and what it may do.
type caller struct {
	name   string // for logs and events
	rights roles.Rights
	proven bool // by a unix socket, a token or a client certificate; the loopback proves nothing
	forged bool // the request names another caller, and its sender is not a server of the store

	session *signedIn // from the cookie of the request; nil: the caller has another credential
	exposed bool      // the request came in plain text over the network

	// still returns the present rights: an open stream asks again, because the credential may have been
	// revoked.
	still func() roles.Rights
}

type callerKey struct{}

// callerOf returns the caller of a request that has passed the gate.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil {
		return &caller{}
	}
	return c
}

// A credential is the valid credential of a request.
type credential struct {
	proof   roles.Proof
	valid   func() bool // whether it is valid now
	session *signedIn   // nil: the credential is not a cookie
}

// always is the validity of a credential that belongs to the connection.
func always() bool { return true }

// identify returns the caller of a request; nil if the request lacks a valid credential. The argument at is the
// address of the listener. The argument own is true for the socket of the server's own user, who may do
// everything.
func (s *Server) identify(r *http.Request, at net.Addr, own bool) *caller {
	if s.Roles == nil {
		return s.identifyByToken(r, at)
	}
	if own {
		return &caller{name: "control socket", rights: roles.Everything(), proven: true, still: roles.Everything}
	}
	c := s.credential(r, at)
	if c == nil {
		return nil
	}
	now := func() roles.Rights {
		if !c.valid() {
			return roles.Rights{}
		}
		return s.Roles().Of(&c.proof)
	}
	is := &caller{name: text.Head(c.proof.Name(), maxWords), rights: now(), proven: !c.proof.Loopback, still: now, session: c.session}
	if stated := r.Header.Get(api.CallerHeader); stated != "" {
		server := func() bool { return c.valid() && s.Roles().IsServer(&c.proof) }
		is.actFor(stated, server)
	}
	return is
}

// identifyByToken is identify for a server without a roles file.
func (s *Server) identifyByToken(r *http.Request, at net.Addr) *caller {
	_, unix := at.(*net.UnixAddr)
	var in *signedIn
	if _, has := r.Header["Authorization"]; !has && s.Token != nil {
		in = s.signedIn(r, false)
	}
	if !unix && in == nil && !s.authorised(r) {
		return nil
	}
	is := &caller{session: in, name: identityOf(r), rights: roles.Everything(), proven: s.Token != nil || proves(r), still: roles.Everything}
	if !is.proven {
		is.name = "loopback"
	}
	if s.Token != nil && !unix {
		is.still = func() roles.Rights {
			if in != nil && s.signedIn(r, true) != nil || in == nil && s.authorised(r) {
				return roles.Everything()
			}
			return roles.Rights{}
		}
	}
	if stated := r.Header.Get(api.CallerHeader); stated != "" && is.proven {
		is.actFor(stated, func() bool { return true })
	}
	return is
}

// proves reports whether the connection of a request proves the identity of its caller.
func proves(r *http.Request) bool {
	return fromUnix(r) || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
}

// credential returns the valid credential of a request; nil if it has none. A request with a token is judged by
// the token alone.
func (s *Server) credential(r *http.Request, at net.Addr) *credential {
	if all := r.Header.Values("Authorization"); len(all) > 0 {
		given := bearer(all)
		name := s.tokenName(given)
		switch {
		case given == "":
			return nil
		case name == "":
			return s.idToken(r.Context(), given)
		}
		return &credential{roles.Proof{Token: name}, func() bool { return s.tokenName(given) == name }, nil}
	}
	if in := s.signedIn(r, false); in != nil {
		return &credential{in.proof(), func() bool { return s.signedIn(r, true) != nil }, in}
	}
	ctx := r.Context()
	if r.TLS != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: *r.TLS}})
	}
	id, err := s.Identity(ctx)
	switch {
	case err != nil: // the certificate has expired since the handshake
		return nil
	case id.Kind != "":
		return &credential{roles.Proof{Identity: id}, func() bool { return unexpired(&id) }, nil}
	case isLoopback(at) && !s.isPublic(r) && s.Roles().Of(&roles.Proof{Loopback: true}).Has(roles.View): // without a binding, it is no credential
		return &credential{roles.Proof{Loopback: true}, always, nil}
	}
	return nil
}

func unexpired(id *access.Identity) bool {
	return id.Expires.IsZero() || time.Now().Before(id.Expires)
}

// isLoopback reports whether only programs of this machine reach a TCP listener.
func isLoopback(at net.Addr) bool {
	_, unix := at.(*net.UnixAddr)
	return !unix && listen.Loopback(at)
}

// tokenName returns the name of a bearer token; "" if it is not valid.
func (s *Server) tokenName(given string) string {
	if want, err := s.token(); err == nil && sameText(given, want) {
		return roles.AdminToken
	}
	return s.Roles().Token(given)
}

// maxStated is the maximum size of the header with a server's caller, in bytes.
const maxStated = 8 << 10

// A statedCaller is the content of the header [api.CallerHeader]. A server of the store sends it to the other servers, on
// behalf of its caller.
type statedCaller struct {
	Name string        `json:"name"`
	May  []roles.Grant `json:"may"`
}

// actFor lets a server of the store act for the caller in the header [api.CallerHeader]: the request has the name and the
// rights of that caller, as long as the function server returns true.
func (c *caller) actFor(stated string, server func() bool) {
	var of statedCaller
	b, err := base64.RawURLEncoding.DecodeString(stated)
	rights, ok := roles.Rights{}, false
	if err == nil && len(stated) <= maxStated && json.Unmarshal(b, &of) == nil && of.Name != "" {
		rights, ok = roles.Granted(of.May)
	}
	if !ok || !server() {
		c.forged = true
		return
	}
	c.name = fmt.Sprintf("%s (through %s)", text.Line(text.Head(of.Name, maxWords)), c.name)
	c.rights = rights
	c.still = func() roles.Rights {
		if server() {
			return rights
		}
		return roles.Rights{}
	}
}

// stated returns the header value with which other servers of the store learn who the caller is.
func (c *caller) stated() string {
	b, _ := json.Marshal(statedCaller{c.name, c.rights.Grants()}) // cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// allowed returns an error unless the caller has the role that a route needs.
func (s *Server) allowed(ctx context.Context, n need) error {
	c := callerOf(ctx)
	switch {
	case n.role == roles.None:
		return nil
	case c.forged:
		return s.lacks(c, "may not send requests for other callers", "servers: in the roles file lists the servers of the store")
	case !c.rights.Has(n.role):
		return s.lacks(c, "lacks the role "+n.role.String(), bindHint)
	case n.all && !c.rights.HasAll(n.role):
		return s.lacks(c, fmt.Sprintf("lacks the role %s for all groups", n.role), bindHint)
	}
	return nil
}

const bindHint = "the file of --admin-roles binds callers to roles (docs/roles.md)"

// may returns an error that names the groups for which the caller lacks a role.
func (s *Server) may(ctx context.Context, role roles.Role, groups ...string) error {
	return s.mayWith(callerOf(ctx), callerOf(ctx).rights, role, groups...)
}

func (s *Server) mayWith(c *caller, rights roles.Rights, role roles.Role, groups ...string) error {
	var without []string
	for _, g := range groups {
		if !rights.Allows(role, g) {
			without = append(without, g)
		}
	}
	if without == nil {
		return nil
	}
	noun := "group"
	if len(without) > 1 {
		noun = "groups"
	}
	return s.lacks(c, fmt.Sprintf("lacks the role %s for %s %s", role, noun, quotedAll(without)), bindHint)
}

// quotedAll returns the first names of a list for an error message.
func quotedAll(all []string) string {
	var some []string
	for _, name := range few(all, named) {
		some = append(some, quoted(name))
	}
	list := strings.Join(some, ", ")
	if more := len(all) - named; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// mayAll returns an error unless the caller has a role for all groups. The argument why is the reason why one
// group is not enough.
func (s *Server) mayAll(ctx context.Context, role roles.Role, why string) error {
	if c := callerOf(ctx); !c.rights.HasAll(role) {
		return s.lacks(c, fmt.Sprintf("lacks the role %s for all groups: %s", role, why), bindHint)
	}
	return nil
}

// lacks returns the error for a caller without a role, and logs it.
func (s *Server) lacks(c *caller, what, hint string) error {
	line := func(times int) {
		s.log().Warn("admin API request refused: the caller lacks a role", "by", c.name, "reason", what, "repeated", times)
	}
	if s.refusedRoles.Allow(c.name, what, 1, func(n int, _ []string) { line(n) }) {
		line(0)
	}
	return &problem{http.StatusForbidden, api.RoleField, c.name + " " + what, hint}
}

// did records an event for a change that the caller of a request made. Handlers write the log line themselves.
func (s *Server) did(r *http.Request, what string) {
	if by := callerOf(r.Context()).name; s.Note != nil {
		s.Note(api.Event{Kind: "admin", By: by, Peer: sender(r), Text: what + " by " + by})
	}
}
