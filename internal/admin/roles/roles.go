// Package roles authorizes callers of the admin API: which caller has which role, and for which groups. The
// bindings come from a roles file (docs/roles.md). [Parse] parses it, and [Policy.Of] returns the rights of a
// caller.
//
// The package does not authenticate: its caller passes what a request has proved. It reads no files.
package roles

import (
	"crypto/sha256"
	"crypto/subtle"
	"slices"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/text/glob"
)

// A Role is a set of permissions. Each role includes the roles before it.
type Role int

// The roles.
const (
	None    Role = iota
	View         // read everything
	Operate      // resync, disconnect, reload, the log level, the pause of rollouts
	Commit       // change the store and the registered endpoints
)

var names = []string{"none", "view", "operate", "commit"}

// String returns the name of the role in a roles file.
func (r Role) String() string { return names[r] }

// roleOf returns the role with a name; None if there is none.
func roleOf(name string) Role { return Role(max(0, slices.Index(names, name))) }

// A Grant is a role of a caller, in a form for JSON.
type Grant = api.Grant

// Rights are the roles of a caller. The zero Rights allow nothing.
type Rights struct{ all []grant }

type grant struct {
	role   Role
	groups []glob.Pattern // nil: all groups
}

// Everything returns the rights of a caller with all roles for all groups.
func Everything() Rights { return Rights{[]grant{{role: Commit}}} }

// Has reports whether the caller has a role for at least one group.
func (r Rights) Has(role Role) bool {
	return slices.ContainsFunc(r.all, func(g grant) bool { return g.role >= role })
}

// HasAll reports whether the caller has a role for all groups.
func (r Rights) HasAll(role Role) bool {
	return slices.ContainsFunc(r.all, func(g grant) bool { return g.role >= role && g.groups == nil })
}

// Allows reports whether the caller has a role for a group.
func (r Rights) Allows(role Role, group string) bool {
	return slices.ContainsFunc(r.all, func(g grant) bool {
		return g.role >= role && (g.groups == nil || slices.ContainsFunc(g.groups, func(p glob.Pattern) bool { return p.Match(group, nil) }))
	})
}

// Grants returns the rights for JSON, with the strongest role last.
func (r Rights) Grants() []Grant {
	all := []Grant{}
	for _, g := range r.all {
		out := Grant{Role: g.role.String()}
		for i := range g.groups {
			out.Groups = append(out.Groups, g.groups[i].String())
		}
		all = append(all, out)
	}
	return all
}

// Granted is the inverse of [Rights.Grants]. It returns false if a grant is invalid.
func Granted(all []Grant) (r Rights, ok bool) {
	for _, g := range all {
		one := grant{role: roleOf(g.Role)}
		if one.role == None || len(g.Groups) > 0 && one.role == View {
			return Rights{}, false
		}
		for _, text := range g.Groups {
			p, err := glob.Compile(text)
			if err != nil {
				return Rights{}, false
			}
			one.groups = append(one.groups, p)
		}
		r.all = append(r.all, one)
	}
	return r, true
}

// A Proof is what a request has proved about its caller. At most one of its fields is set.
type Proof struct {
	Token    string          // name of the bearer token
	Identity access.Identity // client certificate, process at the other end of a unix socket, or signed token
	Loopback bool            // a program of this machine, without credentials
	Label    string          // name of the identity for people; "": that of the identity
}

// Name returns the caller's name for logs and events.
func (p *Proof) Name() string {
	switch {
	case p.Label != "":
		return p.Label
	case p.Token != "":
		return "token " + p.Token
	case p.Loopback:
		return "loopback"
	}
	return p.Identity.String()
}

// A Policy is the content of a roles file. It does not change, and is safe for concurrent use.
type Policy struct {
	bindings []binding
	servers  []subject
	files    []TokenFile
	oidc     *OIDC

	secretPlace string
	claims      map[string]bool // names of the claims in conditions
	tokens      []token
}

// OIDC is the client of an issuer of ID tokens (OpenID Connect).
type OIDC struct {
	Issuer, ClientID string
	SecretFile       string   // file with the client's secret; "": browsers cannot sign in
	CAFile           string   // file with the CAs of the issuer's certificate; "": those of the system
	PublicURL        string   // scheme and host at which browsers reach the server through a proxy; "": there is no proxy
	Audiences        []string // further audiences of tokens
	Scopes           []string // further scopes of a sign-in
}

// SecretPlace returns the place of the path of the client's secret in the roles file.
func (p *Policy) SecretPlace() string { return p.secretPlace }

// Issuer returns the client of the issuer; nil if there is none.
func (p *Policy) Issuer() *OIDC { return p.oidc }

// Relevant returns the claims that conditions of the policy name.
func (p *Policy) Relevant(claims map[string]any) map[string]any {
	some := map[string]any{}
	for name, v := range claims {
		if p.claims[name] {
			some[name] = v
		}
	}
	return some
}

// A TokenFile is a file with a bearer token.
type TokenFile struct {
	Name, Path string
	Place      string // of the path in the roles file, such as roles.yaml:3:7
}

// A token is a bearer token in use.
type token struct {
	name string
	sum  [sha256.Size]byte
	key  session.Key // of sessions that began with the token
}

// A binding gives a role to subjects.
type binding struct {
	role     Role
	groups   []glob.Pattern // nil: all groups
	subjects []subject
}

// A subject matches callers.
type subject struct {
	token     string
	loopback  bool
	condition access.Condition
}

func (s *subject) matches(p *Proof) bool {
	switch {
	case s.token != "":
		return s.token == p.Token
	case s.loopback:
		return p.Loopback
	}
	return p.Token == "" && !p.Loopback && s.condition.Matches(&p.Identity)
}

func matches(all []subject, p *Proof) bool {
	for i := range all {
		if all[i].matches(p) {
			return true
		}
	}
	return false
}

// Of returns the rights of a caller. A server of the store without a binding may view, because status asks all servers.
func (p *Policy) Of(proof *Proof) Rights {
	var r Rights
	for i := range p.bindings {
		if b := &p.bindings[i]; matches(b.subjects, proof) {
			r.all = append(r.all, grant{b.role, b.groups})
		}
	}
	slices.SortStableFunc(r.all, func(a, b grant) int { return int(a.role - b.role) })
	if len(r.all) == 0 && p.IsServer(proof) {
		r.all = []grant{{role: View}}
	}
	return r
}

// IsServer reports whether a caller is another server of the store, which may act for its own callers.
func (p *Policy) IsServer(proof *Proof) bool { return matches(p.servers, proof) }

// TokenFiles returns the files with tokens.
func (p *Policy) TokenFiles() []TokenFile { return p.files }

// WithTokens returns the policy with the tokens in use, by name.
func (p *Policy) WithTokens(tokens map[string]string) *Policy {
	next := *p
	next.tokens = nil
	for _, f := range p.files {
		if text := tokens[f.Name]; text != "" {
			next.tokens = append(next.tokens, token{f.Name, sha256.Sum256([]byte(text)), session.KeyOf(text)})
		}
	}
	return &next
}

// Token returns the name of a bearer token; "" if it is none of the policy.
func (p *Policy) Token(text string) (name string) {
	sum := sha256.Sum256([]byte(text))
	for i := range p.tokens {
		if subtle.ConstantTimeCompare(sum[:], p.tokens[i].sum[:]) == 1 {
			name = p.tokens[i].name
		}
	}
	return name
}

// SessionKey returns the key of the sessions that began with a token; false if there is no such token.
func (p *Policy) SessionKey(name string) (session.Key, bool) {
	for i := range p.tokens {
		if p.tokens[i].name == name {
			return p.tokens[i].key, true
		}
	}
	return session.Key{}, false
}
