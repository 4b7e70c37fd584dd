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

// maxToken is the largest size of a token in bytes. Tokens of Kubernetes have one or two thousand.
const maxToken = 8 << 10

// leeway is how much the clocks of issuer and server may differ.
const leeway = 30 * time.Second

// Tokens configure which tokens are accepted. All fields are required.
type Tokens struct {
	Issuer    string   // the exact claim "iss"
	Audiences []string // the claim "aud" must contain one of them; other tokens are for other services
	Keys      *Keys
}

// A Refused is the error of a token or certificate that is not accepted. Its text is for the client
// and for logs. Its only parts of a token are the key's name and the algorithm, which are not secret.
type Refused struct{ text string }

func (r *Refused) Error() string { return r.text }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// ErrNoKeys means that the keys were not read yet, or that the token's key is unknown and a read of the keys has
// not ended. The token may be valid.
var ErrNoKeys = errors.New("the keys of the tokens' issuer are not known yet: try again later")

// Token is a verified token.
type Token struct {
	Subject string
	Expires time.Time      // the token is not valid from then on
	Claims  map[string]any // all claims, as encoding/json decodes them
}

// Verify verifies a token in the compact form. A key of the issuer must have signed it. It must be
// for one of the audiences, have a subject, and not be expired. The error is a [Refused] or
// [ErrNoKeys]. A call costs one or a few signature verifications, and may wait a second for keys.
func (t *Tokens) Verify(ctx context.Context, token string, now time.Time) (*Token, error) {
	payload, err := t.payload(ctx, token)
	if err != nil {
		return nil, err
	}
	var c jwt.Claims
	all := map[string]any{}
	if json.Unmarshal(payload, &c) != nil || json.Unmarshal(payload, &all) != nil {
		return nil, refuse("the token is malformed: its claims do not conform to RFC 7519")
	}
	switch {
	case c.Issuer != t.Issuer:
		return nil, refuse("the token is not from the issuer %s (iss)", quoted(t.Issuer))
	case !slices.ContainsFunc(t.Audiences, c.Audience.Contains):
		return nil, refuse("the token is for another audience (aud): this server is %s", quoted(strings.Join(t.Audiences, ", ")))
	case c.Expiry == nil:
		return nil, refuse("the token has no expiry time (exp)")
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

// payload verifies the signature and returns the claims.
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
		return nil, refuse("tokens with the algorithm %s are not accepted: use one with a private key (RS256, ES256, EdDSA and similar)", quoted(string(e.Got)))
	}
	if err != nil || len(sig.Signatures) != 1 {
		return nil, refuse("the token is malformed: it is not a JSON Web Token")
	}
	head := sig.Signatures[0].Protected // the header that the signature covers
	keys, err := t.Keys.find(ctx, head.KeyID, jose.SignatureAlgorithm(head.Algorithm))
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if payload, err := sig.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, refuse("the token's signature is wrong: it was not made with the issuer's key %s", quoted(keys[0].KeyID))
}

// Bearer returns the token in the values of the header Authorization; "" if there is none.
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

// when formats a time of a token. The issuer may have set any time, even one that RFC 3339 cannot
// express.
func when(t time.Time) string {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return "a time out of range"
	}
	return t.UTC().Format(time.RFC3339)
}

// quoted returns a text from outside the program in a form that may be shown.
func quoted(s string) string {
	s = text.Head(s, 60)
	if !utf8.ValidString(s) {
		return strconv.QuoteToASCII(s)
	}
	return strconv.Quote(s)
}
