// Package identity authenticates the client of a stream, call or poll: by the certificate of its
// connection, by a bearer token, or by the process at the other end of a unix socket. It never trusts
// unverified statements of a client, such as its node. It does not authorize: that is the task of
// package access.
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

// A Finder authenticates clients. The zero value accepts certificates and processes, and ignores
// tokens.
type Finder struct {
	Tokens *Tokens // nil: tokens are ignored

	now func() time.Time // replaced by tests
}

// Find returns the identity of a client. The context is that of a gRPC call, or the one that package
// rest makes for a request. If the client sends a token, Find ignores the certificate or process of
// the connection. Without any of these, Find returns the zero value. An invalid token is an error,
// even if the connection proves an identity, because the client wants to use the token.
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

// identity verifies a token and returns its identity.
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

// certified returns the identity of the leaf of verified chains. It checks the expiry again: the
// connection may be much older than the stream, and the certificate may have expired since the
// handshake.
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

// end returns when the last of the chains expires. A chain expires when the first of its certificates
// expires.
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
