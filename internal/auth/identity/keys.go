package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/chancery-xds/chancery/internal/disk"
)

// Limits of a key set and of reading it.
const (
	maxKeySet  = 1 << 20 // bytes
	maxKeys    = 100
	maxTried   = 4 // keys tried for one token
	fetchTime  = 5 * time.Second
	minModulus = 2048 // bits of an RSA key
	maxModulus = 8192
)

// Keys are the public keys that verify the tokens of an issuer: a JSON Web Key Set. Run reads the set
// again at an interval, and a token with an unknown key causes another read. If a read fails or hangs, or none
// of the keys is usable, the last valid set stays. A set with an empty list is valid: the issuer revoked its
// keys. Keys are safe for concurrent use. [OpenKeys] makes them.
type Keys struct {
	where string // the file or URL for messages
	file  bool   // it is a file, whose file system may hang
	read  func(context.Context) ([]byte, error)
	every time.Duration // interval of reads
	least time.Duration // shortest time between the starts of two reads, whatever clients send
	log   *slog.Logger

	current atomic.Pointer[keySet] // nil: no valid set was read yet

	reads disk.Reads
	sum   [sha256.Size]byte // hash of the last content, valid or not; only the running read uses it
}

// OpenKeys reads the key set of a file, or of an http(s) URL. An invalid file is an error. If a URL
// cannot be read, OpenKeys logs that and tries again, because a server must start even if the issuer
// is down. Until keys are known, clients with tokens get [ErrNoKeys].
func OpenKeys(ctx context.Context, where string, log *slog.Logger) (*Keys, error) {
	k, err := newKeys(where, log)
	if err != nil {
		return nil, err
	}
	if k.file {
		b, err := k.read(ctx)
		if err != nil {
			return nil, err
		}
		return k, k.take(b)
	}
	k.refresh(ctx)
	return k, nil
}

// Run reads the key set at an interval until ctx is done.
func (k *Keys) Run(ctx context.Context) {
	for {
		wait := k.every
		if k.current.Load() == nil {
			wait = k.least
		}
		select {
		case <-time.After(wait):
			k.refresh(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// refresh reads the key set, unless a read is running or started recently. It waits for the running read for
// [disk.ReadTime] at most, and reports whether that read has not ended.
func (k *Keys) refresh(ctx context.Context) (running bool) {
	running, first := k.reads.Do(ctx, time.Now(), k.least, k.fetch)
	if first && k.file { // a read of a URL ends with an error
		k.log.Warn("a read of --jwks does not end, using the last keys", "after", disk.ReadTime.String(), "jwks", k.where)
	}
	return running
}

// fetch reads the key set once, and logs the result if the content changed. A read of a URL lasts at most fetchTime.
func (k *Keys) fetch() {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	b, err := k.read(ctx)
	sum := sha256.Sum256(b)
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error()))
	}
	if sum == k.sum {
		return
	}
	if err == nil {
		err = k.take(b)
	}
	k.sum = sum
	if err == nil {
		return
	}
	if k.current.Load() == nil {
		k.log.Error("cannot read the keys of --jwks: clients with tokens are refused", "jwks", k.where, "error", err)
		return
	}
	k.log.Error("the new keys of --jwks are invalid: keeping the previous ones", "jwks", k.where, "error", err)
}

// take uses a new key set if it has a usable key or an empty list of keys.
func (k *Keys) take(b []byte) error {
	set, skipped, err := parseKeys(b)
	if err != nil {
		return fmt.Errorf("--jwks %s: %w", k.where, err)
	}
	k.sum = sha256.Sum256(b)
	k.current.Store(set)
	k.log.Info("keys of --jwks loaded", "jwks", k.where, "keys", len(set.keys), "skipped", len(skipped))
	if len(set.keys) == 0 {
		k.log.Warn("the set of --jwks has no keys: clients with tokens are refused", "jwks", k.where)
	}
	for _, why := range skipped {
		k.log.Warn("a key of --jwks is not used", "jwks", k.where, "reason", why)
	}
	return nil
}

// find returns the few keys that may have signed a token. An unknown key may be new, so find reads
// the set again, unless the last read is recent. It does not wait for a read that hangs.
func (k *Keys) find(ctx context.Context, id string, alg jose.SignatureAlgorithm) ([]jose.JSONWebKey, error) {
	keys := k.current.Load().match(id, alg)
	if len(keys) == 0 {
		running := k.refresh(ctx)
		set := k.current.Load()
		keys = set.match(id, alg)
		if len(keys) == 0 && (running || set == nil) {
			return nil, ErrNoKeys
		}
	}
	switch {
	case len(keys) > 0:
		return keys, nil
	case id == "":
		return nil, refuse("the token has no key ID (kid), and the issuer has no key for %s", alg)
	}
	return nil, refuse("the token is signed with the key %s, which the issuer does not have for %s", quoted(id), alg)
}

// A keySet has the usable keys of a set.
type keySet struct{ keys []jose.JSONWebKey }

// match returns at most maxTried keys with an ID that fit an algorithm. The ID "" matches all keys,
// because a token need not have a key ID.
func (s *keySet) match(id string, alg jose.SignatureAlgorithm) (found []jose.JSONWebKey) {
	if s == nil {
		return nil
	}
	for _, key := range s.keys {
		if (id == "" || key.KeyID == id) && fits(key, alg) && len(found) < maxTried {
			found = append(found, key)
		}
	}
	return found
}

// parseKeys parses a JSON Web Key Set and returns the public keys for signatures. "Implementations
// SHOULD ignore JWKs within a JWK Set that use "kty" (key type) values that are not understood by
// them" (RFC 7517). The list skipped has the reason for each unusable key.
func parseKeys(b []byte) (*keySet, []string, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, nil, errors.New("is not a JSON Web Key Set: it is not JSON, or \"keys\" is not a list")
	}
	if len(raw.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("has %d keys: at most %d are allowed", len(raw.Keys), maxKeys)
	}
	set := &keySet{}
	var skipped []string
	for i, one := range raw.Keys {
		var head struct {
			Kty, Kid, Use, D string
		}
		_ = json.Unmarshal(one, &head) // an error is reported below
		name := fmt.Sprintf("key %d (%s)", i, quoted(head.Kid))
		var key jose.JSONWebKey
		switch {
		case head.Use != "" && head.Use != "sig":
			continue // for encryption
		case head.Kty == "oct":
			skipped = append(skipped, name+": it is symmetric: it can sign tokens, too")
			continue
		case head.D != "":
			skipped = append(skipped, name+": it is a private key, but only public keys belong here: replace it, because others may have read it")
			continue
		case key.UnmarshalJSON(one) != nil || !key.Valid():
			skipped = append(skipped, name+": it is malformed or of an unknown type")
			continue
		}
		if why := weak(key); why != "" {
			skipped = append(skipped, name+": "+why)
			continue
		}
		set.keys = append(set.keys, key)
	}
	if revoked := raw.Keys != nil && len(raw.Keys) == 0; len(set.keys) == 0 && !revoked {
		why := ""
		if len(skipped) > 0 {
			why = ": " + skipped[0]
		}
		return nil, nil, errors.New("has no usable key for signatures" + why)
	}
	return set, skipped, nil
}

// weak returns the reason why a key may not be used: it is too weak, or verifying with it costs too
// much. "" means that it may be used.
func weak(key jose.JSONWebKey) string {
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minModulus || n > maxModulus {
			return fmt.Sprintf("an RSA key needs %d to %d bits, and has %d", minModulus, maxModulus, n)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return "its type is not for signatures"
	}
	return ""
}

// algorithms are the accepted algorithms. All have public keys. A symmetric algorithm is not
// accepted, because everybody who knows a public key could sign with it.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// fits reports whether a key can be used with an algorithm.
func fits(key jose.JSONWebKey, alg jose.SignatureAlgorithm) bool {
	if key.Algorithm != "" && key.Algorithm != string(alg) {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return alg[:2] == "RS" || alg[:2] == "PS"
	case *ecdsa.PublicKey:
		return map[int]jose.SignatureAlgorithm{256: jose.ES256, 384: jose.ES384, 521: jose.ES512}[k.Curve.Params().BitSize] == alg
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	}
	return false
}
