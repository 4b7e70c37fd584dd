package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/testkit/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A signer signs tokens with a key of an issuer.
type signer struct {
	id  string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

func newSigner(t testing.TB, id string, alg jose.SignatureAlgorithm) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, alg, key}
}

// jwk returns the public key.
func (s signer) jwk() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Use: "sig"}
}

// set returns a key set.
func set(t testing.TB, keys ...any) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type claims map[string]any

// good returns claims that are accepted.
func good(change ...claims) claims {
	c := claims{"iss": "https://issuer.example", "aud": "chancery", "sub": "edge-1", "exp": time.Now().Add(time.Hour).Unix()}
	for _, m := range change {
		for k, v := range m {
			if c[k] = v; v == nil {
				delete(c, k)
			}
		}
	}
	return c
}

func (s signer) sign(t testing.TB, c claims) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, s.alg, s.key, s.id, b)
}

func signed(t testing.TB, alg jose.SignatureAlgorithm, key any, id string, payload []byte) string {
	t.Helper()
	j, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := j.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	compact, err := o.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

// part returns JSON encoded as in a token.
func part(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

type logBook = logtest.Log

// An issuer publishes keys that tests change.
type issuer struct {
	mu    sync.Mutex
	bytes []byte
	err   error
	delay time.Duration
	reads int
}

func (i *issuer) read(ctx context.Context) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reads++
	if i.delay > 0 {
		select {
		case <-time.After(i.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return i.bytes, i.err
}

// has sets the published keys.
func (i *issuer) has(b []byte, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.bytes, i.err = b, err
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reads
}

// tokens returns a verifier with the issuer's keys. Its intervals are those for a URL.
func (i *issuer) tokens(log *logBook) *Tokens {
	k := &Keys{where: "test", read: i.read, every: 5 * time.Minute, least: 10 * time.Second, log: slog.New(slog.NewTextHandler(log, nil))}
	return &Tokens{Issuer: "https://issuer.example", Audiences: []string{"chancery", "xds"}, Keys: k}
}
