// Package identity says who is at the other end of a stream, call or poll: by the certificate of
// its connection, by a bearer token, or by the process that opened a unix socket. It believes
// nothing that a client merely says, such as its node; and it does not say what anybody may do,
// which is the business of package access.
package identity

import (
	"context"
	"crypto/x509"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/internal/auth/access"
)

// A Finder finds identities. The zero value knows certificates and processes, and looks at no
// token.
type Finder struct {
	Tokens *Tokens // nil: tokens are not looked at

	now func() time.Time // replaced by tests
}

// Find returns the identity that a context proves, which is one of a gRPC call or what package rest makes of a request: that of
// its token, if there is one and tokens are looked at; else that of its connection; the zero
// value if neither proves any. A token that is not good is an error: whoever shows one wants to
// be known by it.
func (f *Finder) Find(ctx context.Context) (access.Identity, error) {
	now := time.Now
	if f.now != nil {
		now = f.now
	}
	if f.Tokens != nil {
		token, err := Bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
		if err != nil {
			return access.Identity{}, err
		}
		if token != "" {
			return f.Tokens.identity(ctx, token, now())
		}
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return access.Identity{}, nil
	}
	switch info := p.AuthInfo.(type) {
	case credentials.TLSInfo:
		return certified(info.State.VerifiedChains, now())
	case Process:
		return access.Identity{Kind: access.Unix, UID: int(info.UID), GID: int(info.GID), PID: int(info.PID)}, nil
	}
	return access.Identity{}, nil
}

// identity is what a token proves, as an identity.
func (t *Tokens) identity(ctx context.Context, token string, now time.Time) (access.Identity, error) {
	c, err := t.Verify(ctx, token, now)
	if err != nil {
		return access.Identity{}, err
	}
	id := access.Identity{Kind: access.JWT, Subject: c.Subject, Issuer: t.Issuer, Claims: c.Claims, Expires: c.Expires}
	if strings.HasPrefix(c.Subject, "spiffe://") {
		id.URIs = []string{c.Subject}
	}
	return id, nil
}

// certified is the identity of the certificate at the beginning of verified chains. A
// connection may outlive it: the handshake, which verified it, is long ago when a stream opens.
func certified(chains [][]*x509.Certificate, now time.Time) (access.Identity, error) {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return access.Identity{}, nil
	}
	leaf := chains[0][0]
	id := access.Identity{Kind: access.MTLS, DNS: leaf.DNSNames, Subject: leaf.Subject.String(), Issuer: leaf.Issuer.String(), Expires: end(chains)}
	for _, u := range leaf.URIs {
		id.URIs = append(id.URIs, u.String())
	}
	if !now.Before(id.Expires) {
		return access.Identity{}, refuse("the client's certificate expired at %s: connect with a new one", when(id.Expires))
	}
	return id, nil
}

// end is when the last of the chains ends that lead from a certificate to a root.
func end(chains [][]*x509.Certificate) (last time.Time) {
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}
