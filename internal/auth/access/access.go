// Package access says which identity may be which node, and what it sees: rules as data, read
// from an access.yaml (docs/identity.md). [Parse] reads one, [Policy.Decide] asks it about a
// connection, and a [Source] puts the answer between a source of resources and a server.
//
// It proves no identity: whoever knows the connection says what that has proved. It reads no
// files, and starts no goroutine.
package access

import (
	"context"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Kinds of identities: how a connection has proved it.
const (
	None = ""     // nothing was proved
	MTLS = "mtls" // a client certificate
	JWT  = "jwt"  // a signed token
	Unix = "unix" // the peer credentials of a unix socket
)

// An Identity is what a connection has proved about its client. All of it must be verified: what
// a client only says of itself has no place here. The zero Identity is that of a connection that
// proves nothing.
//
// DNS names and URIs are apart since nobody checks what characters are in a DNS name of a
// certificate: one that looks like a SPIFFE ID is none.
type Identity struct {
	Kind string // None, MTLS, JWT or Unix

	DNS  []string // DNS names of the certificate, as they are there
	URIs []string // URI names of the certificate, with its SPIFFE ID; of a token, its subject if that is a SPIFFE ID

	Subject string         // of the token, or the distinguished name of the certificate
	Issuer  string         // of the token, or of the certificate
	Claims  map[string]any // of the token, as encoding/json makes them; never shown

	UID, GID, PID int // of Unix; without meaning for others

	// Expires says when the certificate or token ends; zero: never. A stream ends with it.
	Expires time.Time
}

// A Policy says what identities may do. It never changes, and is safe for concurrent use. It is
// made by [Parse] or [Default].
type Policy struct {
	rules     []rule
	otherwise bool // who matches no rule is bound by default
}

// Default returns the policy of a server with client certificates and no access.yaml: a client
// may be the node whose id is one of its DNS names or URIs, or the last segment of its SPIFFE ID,
// and sees all that this node gets. A connection that proves no name may be no node.
func Default() *Policy { return &Policy{otherwise: true} }

// Decide says what an identity sees as a node. An error is a [*Denied]: it may not be that node.
// A nil node is one without an id.
//
// What the node gets may depend on its groups: see [Grant.In].
func (p *Policy) Decide(id Identity, node *xds.Node) (Grant, error) {
	return p.decide(&id, node)
}

// A Denied is why a client gets nothing. Its text is for the client and the log, and has no claims.
type Denied struct {
	Reason string // a sentence, without its identity or node
	Rule   string // the name of the rule that decided; "" if none allows it
	Place  string // of this rule, file:line:column, for the log

	// Unauthenticated says that another identity is needed, as of one that has expired; if it is
	// false, this one lacks a permission.
	Unauthenticated bool

	told bool
}

// A Watch is [server.Watch]. If it has a method Limit(func(*xds.Type, string) bool), that is told which names, and of which
// wildcards and collections something, the stream may see from then on; nil: all. So who asks others for what a stream
// asks for does so only for who may see it. It is called before the first Interested, and by the same goroutine.
type Watch interface {
	C() <-chan struct{}
	Next() (xds.View, []xds.Names, error)
	Interested(t *xds.Type, wildcard bool, added, removed []string)
	Close()
}

// A Watched is [server.Source].
type Watched[W Watch] interface {
	Watch(ctx context.Context, node *xds.Node) (W, error)
}
