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
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Bounds of what a key set may be, and of how often one is read.
const (
	maxKeySet  = 1 << 20 // bytes
	maxKeys    = 100
	maxTried   = 4 // keys for one token
	fetchTime  = 5 * time.Second
	minModulus = 2048 // bits of an RSA key
	maxModulus = 8192
)

// Keys are the public keys by which an issuer's tokens are verified: a JSON Web Key Set, which
// is read again now and then, and when a token names a key that is not in it. While it cannot be
// read, or has no key of use, the last good one stays. They are safe for concurrent use; make
// them by [OpenKeys].
type Keys struct {
	where string // for people
	read  func(context.Context) ([]byte, error)
	every time.Duration // reads, at least
	least time.Duration // between the beginnings of two reads, whatever clients send
	log   *slog.Logger

	current atomic.Pointer[keySet] // nil: none was ever read

	mu     sync.Mutex        // held for memory only
	began  time.Time         // the last read
	flight chan struct{}     // closed when the read that is under way has ended; nil: none is
	sum    [sha256.Size]byte // of what was read last, good or bad; of the one read that is under way
}

// OpenKeys reads the key set of a file, or of an http(s) URL. A file that is of no use is an
// error; a URL that is of no use is told to the log and tried again, since a server must start
// though the issuer is down: until its keys are known, clients with tokens are told to come back.
func OpenKeys(ctx context.Context, where string, log *slog.Logger) (*Keys, error) {
	k, file, err := newKeys(where, log)
	if err != nil {
		return nil, err
	}
	if file {
		b, err := k.read(ctx)
		if err != nil {
			return nil, err
		}
		return k, k.take(b)
	}
	k.wait(ctx, k.refresh(time.Now()))
	return k, nil
}

// Run reads the key set every now and then until ctx is done.
func (k *Keys) Run(ctx context.Context) {
	for {
		wait := k.every
		if k.current.Load() == nil {
			wait = k.least
		}
		select {
		case <-time.After(wait):
			k.wait(ctx, k.refresh(time.Now()))
		case <-ctx.Done():
			return
		}
	}
}

// refresh has the key set read, unless that began a moment ago. It returns what is closed when
// the read has ended; nil: none is under way.
func (k *Keys) refresh(now time.Time) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight != nil {
		return k.flight
	}
	if !k.began.IsZero() && now.Sub(k.began) < k.least {
		return nil
	}
	done := make(chan struct{})
	k.began, k.flight = now, done
	go func() {
		defer close(done)
		k.fetch()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.flight = nil
	}()
	return done
}

// wait returns when a read has ended, or ctx is done. A read ends by itself after fetchTime.
func (k *Keys) wait(ctx context.Context, done <-chan struct{}) {
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// fetch reads the key set once, and tells what came of it if that is new.
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
	if k.sum = sum; err == nil {
		return
	}
	if k.current.Load() == nil {
		k.log.Error("the keys of --jwks cannot be read: clients with tokens have to wait", "jwks", k.where, "error", err)
		return
	}
	k.log.Error("the new keys of --jwks are of no use: keeping the previous ones", "jwks", k.where, "error", err)
}

// take uses a key set from now on, if it has a key of use.
func (k *Keys) take(b []byte) error {
	set, skipped, err := parseKeys(b)
	if err != nil {
		return fmt.Errorf("--jwks %s: %w", k.where, err)
	}
	k.sum = sha256.Sum256(b)
	k.current.Store(set)
	k.log.Info("keys of --jwks loaded", "jwks", k.where, "keys", len(set.keys), "skipped", len(skipped))
	for _, why := range skipped {
		k.log.Warn("a key of --jwks is not used", "jwks", k.where, "reason", why)
	}
	return nil
}

// find returns the keys that a token may be signed with, at most a few. A key that is not
// known may be new: the set is read again, at most so often.
func (k *Keys) find(ctx context.Context, id string, alg jose.SignatureAlgorithm) ([]jose.JSONWebKey, error) {
	keys := k.current.Load().match(id, alg)
	if len(keys) == 0 {
		k.wait(ctx, k.refresh(time.Now()))
		set := k.current.Load()
		if set == nil {
			return nil, ErrNoKeys
		}
		keys = set.match(id, alg)
	}
	switch {
	case len(keys) > 0:
		return keys, nil
	case id == "":
		return nil, refuse("the token names no key (kid), and no key of the issuer is for %s", alg)
	}
	return nil, refuse("the token is signed with the key %s, which the issuer does not have for %s", quoted(id), alg)
}

// A keySet is what a key set has of use.
type keySet struct{ keys []jose.JSONWebKey }

// match returns the keys of an id that an algorithm can be used with, at most maxTried; with id
// "" of any id, since tokens need not name their key.
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

// parseKeys reads a JSON Web Key Set: public keys for signatures. "Implementations SHOULD ignore
// JWKs within a JWK Set that use "kty" (key type) values that are not understood by them" (RFC
// 7517); skipped says why others are.
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
		_ = json.Unmarshal(one, &head) // what is wrong is told below
		name := fmt.Sprintf("key %d (%s)", i, quoted(head.Kid))
		var key jose.JSONWebKey
		switch {
		case head.Use != "" && head.Use != "sig":
			continue // for encryption
		case head.Kty == "oct":
			skipped = append(skipped, name+": it is symmetric: who can verify with it can sign, too")
			continue
		case head.D != "":
			skipped = append(skipped, name+": it is private, and this file is for public keys: replace it, since others may have read it")
			continue
		case key.UnmarshalJSON(one) != nil || !key.Valid():
			skipped = append(skipped, name+": it is malformed, or of an unknown kind")
			continue
		}
		if why := weak(key); why != "" {
			skipped = append(skipped, name+": "+why)
			continue
		}
		set.keys = append(set.keys, key)
	}
	if len(set.keys) == 0 {
		why := ""
		if len(skipped) > 0 {
			why = ": " + skipped[0]
		}
		return nil, nil, errors.New("has no key of use for signatures" + why)
	}
	return set, skipped, nil
}

// weak says why a key may not be used: what it proves, or what it costs.
func weak(key jose.JSONWebKey) string {
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minModulus || n > maxModulus {
			return fmt.Sprintf("an RSA key needs %d to %d bits, and has %d", minModulus, maxModulus, n)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return "its kind is not used for signatures"
	}
	return ""
}

// algorithms are those of public keys: never those by which whoever knows the key, which
// everybody does, could sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// fits reports whether a key is for an algorithm.
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
