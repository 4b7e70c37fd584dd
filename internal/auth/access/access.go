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

// Kinds of identities, by how a connection has proved it.
const (
	None = ""     // no identity
	MTLS = "mtls" // a client certificate
	JWT  = "jwt"  // a signed token
	Unix = "unix" // the peer credentials of a unix socket
)

// An Identity is the verified identity of a client. Unverified statements of the client do not belong
// here. The zero Identity is that of a connection without a proof.
//
// DNS names and URIs are separate fields, because no issuer checks the characters of a DNS name in a
// certificate: a DNS name that looks like a SPIFFE ID must not count as one.
type Identity struct {
	Kind string // None, MTLS, JWT or Unix

	DNS  []string // DNS names of the certificate, unchanged
	URIs []string // URI names of the certificate, including its SPIFFE ID; for a token, its subject if that is a SPIFFE ID

	Subject string         // of the token; or the distinguished name of the certificate
	Issuer  string         // of the token, or of the certificate
	Claims  map[string]any // of the token, as encoding/json decodes them; never shown

	UID, GID, PID int // only for Kind Unix

	// Expires is when the certificate or token expires; zero: never. A stream ends with it.
	Expires time.Time
}

// A Policy decides what identities may do. It does not change, and is safe for concurrent use. [Parse]
// or [Default] make it.
type Policy struct {
	rules     []rule
	otherwise bool // the default policy applies to identities that match no rule
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

// A Denied is the reason why a client gets nothing. Its text is for the client and the log, and
// contains no claims.
type Denied struct {
	Reason string // a sentence, without the identity and the node
	Rule   string // name of the rule that decided; "" if no rule allows it
	Place  string // place of this rule, file:line:column, for the log

	// Unauthenticated means that the client needs another identity, for example because this one has
	// expired. If false, the identity lacks a permission.
	Unauthenticated bool

	reported bool
}

// A Watch is [server.Watch].
//
// It may have a method Limit(func(*xds.Type, string) bool). Limit receives a function that reports
// which names the stream may see from then on, and whether it may see any resource of a wildcard or
// collection; nil: all. So a watch that requests subscribed names from another server can leave out
// those that the stream may not see. Limit is called before the first Interested, and from the same
// goroutine.
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
