package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/internal/text"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
)

// maxToken is how long a token may be in bytes. Those of Kubernetes have one or two thousand.
const maxToken = 8 << 10

// leeway is by how much the clocks of issuer and server may differ.
const leeway = 30 * time.Second

// Tokens say whose tokens are believed. All fields are needed.
type Tokens struct {
	Issuer    string   // the claim "iss", exactly
	Audiences []string // the claim "aud" has one of them: a token for another service proves nothing here
	Keys      *Keys
}

// A Refused is why nobody is believed. Its text is for the client and for logs: it has nothing
// of a token but the name of its key and of its algorithm, which are no secrets.
type Refused struct{ text string }

func (r *Refused) Error() string { return r.text }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// ErrNoKeys says that it is not known yet whose tokens are good, which is not their fault.
var ErrNoKeys = errors.New("the keys of the tokens' issuer are not known yet: try again later")

// Token is what a token proves.
type Token struct {
	Subject string
	Expires time.Time      // it proves nothing from then on
	Claims  map[string]any // all of them, as JSON has them
}

// Verify returns what a token proves: one in the compact form, signed by a key of the issuer, for one of the audiences,
// not expired, and with a subject. Any other is an error, which is a [Refused], unless no keys are
// known. It costs one verification or a few, and may wait some seconds for keys.
func (t *Tokens) Verify(ctx context.Context, token string, now time.Time) (*Token, error) {
	payload, err := t.payload(ctx, token)
	if err != nil {
		return nil, err
	}
	var c jwt.Claims
	all := map[string]any{}
	if json.Unmarshal(payload, &c) != nil || json.Unmarshal(payload, &all) != nil {
		return nil, refuse("the token is malformed: its claims are not as RFC 7519 has them")
	}
	switch {
	case c.Issuer != t.Issuer:
		return nil, refuse("the token is not of the issuer %s (iss)", quoted(t.Issuer))
	case !slices.ContainsFunc(t.Audiences, c.Audience.Contains):
		return nil, refuse("the token is for another audience (aud): this server is %s", quoted(strings.Join(t.Audiences, ", ")))
	case c.Expiry == nil:
		return nil, refuse("the token never expires: it needs a time (exp)")
	case c.Subject == "":
		return nil, refuse("the token has no subject (sub)")
	}
	expires := c.Expiry.Time().Add(leeway)
	switch {
	case !now.Before(expires):
		return nil, refuse("the token expired at %s", when(c.Expiry.Time()))
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time()):
		return nil, refuse("the token is not valid before %s (nbf)", when(c.NotBefore.Time()))
	case c.IssuedAt != nil && now.Add(leeway).Before(c.IssuedAt.Time()):
		return nil, refuse("the token is from the future (iat): is a clock wrong?")
	}
	return &Token{Subject: c.Subject, Expires: expires, Claims: all}, nil
}

// payload verifies the signature.
func (t *Tokens) payload(ctx context.Context, token string) ([]byte, error) {
	if len(token) > maxToken {
		return nil, refuse("the token has %d bytes: at most %d are allowed", len(token), maxToken)
	}
	switch strings.Count(token, ".") {
	case 2:
	case 4:
		return nil, refuse("the token is encrypted (JWE): a signed one is needed")
	default:
		return nil, refuse("the token is malformed: it is not a JSON Web Token")
	}
	sig, err := jose.ParseSignedCompact(token, algorithms)
	if e, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return nil, refuse("tokens with the algorithm %s are not accepted: only those signed with a private key (RS256, ES256, EdDSA and their kin)", quoted(string(e.Got)))
	}
	if err != nil || len(sig.Signatures) != 1 {
		return nil, refuse("the token is malformed: it is not a JSON Web Token")
	}
	head := sig.Signatures[0].Protected // what is signed
	keys, err := t.Keys.find(ctx, head.KeyID, jose.SignatureAlgorithm(head.Algorithm))
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if payload, err := sig.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, refuse("the token's signature is wrong: it is not of the issuer's key %s", quoted(keys[0].KeyID))
}

// Bearer returns the token of the values of a header Authorization; "": there is none.
func Bearer(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", refuse("there is more than one authorization header")
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", refuse("the authorization header has no bearer token: want \"Bearer TOKEN\"")
	}
	return token, nil
}

// when writes a time of a token, of which an issuer may have any.
func when(t time.Time) string {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return "a time out of range"
	}
	return t.UTC().Format(time.RFC3339)
}

// quoted is a text of others as it may be shown.
func quoted(s string) string {
	s = text.Head(s, 60)
	if !utf8.ValidString(s) {
		return strconv.QuoteToASCII(s)
	}
	return strconv.Quote(s)
}
