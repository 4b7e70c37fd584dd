// Package access authorizes clients: which identity may be which node, and which resources it sees.
// The rules come from an access.yaml (docs/identity.md). [Parse] parses it, [Policy.Decide] decides
// for one connection, and a [Source] enforces the decision between a source of resources and a server.
//
// The package does not authenticate: the caller passes a verified identity. It reads no files, and
// starts no goroutine.
package access

import (
	"context"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Kinds of identities: the ways in which a connection proves its identity.
const (
	None = ""     // no identity
	MTLS = "mtls" // a client certificate
	JWT  = "jwt"  // a signed token
	Unix = "unix" // the peer credentials of a unix socket
)

// An Identity is the verified identity of a client. It contains nothing that the client states
// without a proof. The zero Identity is that of a connection without a proof.
//
// DNS names and URIs are separate fields, because no issuer checks the characters of a DNS name in a
// certificate: a DNS name that looks like a SPIFFE ID must not count as one.
type Identity struct {
	Kind string // None, MTLS, JWT or Unix

	DNS  []string // DNS names of the certificate, unchanged
	URIs []string // URI names of the certificate, including its SPIFFE ID; for a token, its subject if that is a SPIFFE ID

	Subject string         // subject of the token, or distinguished name of the certificate
	Issuer  string         // issuer of the token or of the certificate
	Claims  map[string]any // claims of the token, as encoding/json decodes them; never shown

	UID, GID, PID int // only for Kind Unix

	// Expires is the time when the certificate or token expires; zero: never. The stream ends before
	// then.
	Expires time.Time
}

// A Policy decides what identities may do. It does not change, and is safe for concurrent use.
// [Parse] and [Default] make policies.
type Policy struct {
	rules     []rule
	otherwise bool // whether the default policy applies to identities that match no rule
}

// Default returns the policy of a server with client certificates and without an access.yaml. The node
// ID of a client must be one of its DNS names or URIs, or the last segment of its SPIFFE ID. The
// client then sees all resources of this node. A client without a name may not be any node.
func Default() *Policy { return &Policy{otherwise: true} }

// Decide returns what an identity sees as a node. The error is a [*Denied]: the identity may not be
// that node. A nil node is a node without an ID.
//
// The result may depend on the groups of the node: see [Grant.In].
func (p *Policy) Decide(id Identity, node *xds.Node) (Grant, error) {
	return p.decide(&id, node)
}

// A Denied is the reason why the policy refuses a client. Its text is for the client and the log, and
// contains no claims.
type Denied struct {
	Reason string // a sentence, without the identity and the node
	Rule   string // name of the rule that decided; "" if no rule allows it
	Place  string // place of this rule, file:line:column, for the log

	// Unauthenticated means that the client needs another identity, for example because this one has
	// expired. If it is false, the identity is valid but lacks a permission.
	Unauthenticated bool

	reported bool
}

// A Watch is [server.Watch].
//
// It may have a method Limit(func(*xds.Type, string) bool). Its argument reports whether the stream
// may see a name, from the call on. For a wildcard or a collection, it reports whether the stream may
// see any of its resources. A nil argument means that the stream may see all names. So a watch that
// requests subscribed names from another server can leave out those that the stream may not see.
// Limit is called before the first Interested, and from the same goroutine.
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
