package identity

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/chancery-xds/chancery/internal/disk"
)

// within runs a subtest in a bubble of testing/synctest, where time passes at once.
func within(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func (t *Tokens) check(tt *testing.T, token, want string) {
	tt.Helper()
	_, err := t.Verify(tt.Context(), token, time.Now())
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		tt.Errorf("%v, want %q", err, want)
	}
}

func TestKeyRotation(t *testing.T) {
	one, two, stranger := newSigner(t, "1", jose.ES256), newSigner(t, "2", jose.ES256), newSigner(t, "x", jose.ES256)
	within(t, "SAFE-13 the token of a new key is taken as soon as the key is published", func(t *testing.T) {
		i, log := &issuer{bytes: set(t, one.jwk())}, &logBook{}
		tokens := i.tokens(log)
		tokens.check(t, one.sign(t, good()), "")
		i.has(set(t, one.jwk(), two.jwk()), nil)
		time.Sleep(10 * time.Second)
		tokens.check(t, two.sign(t, good()), "")
		tokens.check(t, one.sign(t, good()), "")
		i.has(set(t, two.jwk()), nil)
		time.Sleep(10 * time.Second)
		tokens.check(t, stranger.sign(t, good()), "does not have")
		tokens.check(t, one.sign(t, good()), "does not have")
		if i.count() != 3 || len(log.Lines("keys of --jwks loaded")) != 3 {
			t.Error(i.count(), log.String())
		}
	})
	within(t, "SAFE-13 what is of no use changes nothing, is told once, and is tried again", func(t *testing.T) {
		i, log := &issuer{bytes: set(t, one.jwk())}, &logBook{}
		tokens := i.tokens(log)
		tokens.check(t, one.sign(t, good()), "")
		i.has(nil, errors.New("no route"))
		for range 3 {
			time.Sleep(10 * time.Second)
			tokens.check(t, stranger.sign(t, good()), "does not have")
		}
		i.has(set(t, 7, map[string]string{"kty": "XYZ"}), nil)
		time.Sleep(10 * time.Second)
		tokens.check(t, stranger.sign(t, good()), "does not have")
		tokens.check(t, one.sign(t, good()), "")
		if i.count() != 5 || len(log.Lines("keeping the previous ones")) != 2 || len(log.Lines("no route")) != 1 {
			t.Error(i.count(), log.String())
		}
		i.has(set(t, two.jwk()), nil)
		time.Sleep(10 * time.Second)
		tokens.check(t, two.sign(t, good()), "")
	})
	within(t, "SAFE-13 an empty list of keys revokes all keys", func(t *testing.T) {
		i, log := &issuer{bytes: set(t, one.jwk())}, &logBook{}
		tokens := i.tokens(log)
		tokens.check(t, one.sign(t, good()), "")
		i.has([]byte(`{"keys":[]}`), nil)
		for range 3 {
			time.Sleep(10 * time.Second)
			tokens.check(t, stranger.sign(t, good()), "does not have")
			tokens.check(t, one.sign(t, good()), "does not have")
		}
		if len(log.Lines("the set of --jwks has no keys")) != 1 || len(log.Lines("keeping the previous ones")) != 0 {
			t.Error(log.String())
		}
		i.has(set(t, one.jwk()), nil)
		time.Sleep(10 * time.Second)
		tokens.check(t, one.sign(t, good()), "")
	})
	within(t, "SAFE-13 strangers do not make it read the keys more often", func(t *testing.T) {
		i := &issuer{bytes: set(t, one.jwk()), delay: time.Second / 2}
		tokens := i.tokens(&logBook{})
		start := time.Now()
		token := stranger.sign(t, good())
		for time.Since(start) < time.Minute {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { tokens.check(t, token, "does not have") })
			}
			all.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		if n := i.count(); n > 7 {
			t.Errorf("the keys were read %d times in a minute", n)
		}
	})
	within(t, "SAFE-13 an issuer that does not answer costs a second", func(t *testing.T) {
		i, log := &issuer{bytes: set(t, one.jwk()), delay: time.Hour}, &logBook{}
		tokens := i.tokens(log)
		start := time.Now()
		_, err := tokens.Verify(t.Context(), one.sign(t, good()), time.Now())
		if !errors.Is(err, ErrNoKeys) || time.Since(start) != disk.ReadTime {
			t.Error(err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(10 * time.Second)
		if _, err = tokens.Verify(ctx, one.sign(t, good()), time.Now()); !errors.Is(err, ErrNoKeys) {
			t.Error(err)
		}
		synctest.Wait()
		time.Sleep(fetchTime)
	})
	within(t, "SAFE-9 a file system that hangs delays tokens with a known key not at all, others a second", func(t *testing.T) {
		i, log := &issuer{bytes: set(t, one.jwk())}, &logBook{}
		tokens := i.tokens(log)
		tokens.Keys.file, tokens.Keys.every, tokens.Keys.least = true, 5*time.Second, time.Second
		tokens.check(t, one.sign(t, good()), "")
		hangs := make(chan struct{})
		var reads atomic.Int32
		tokens.Keys.read = func(ctx context.Context) ([]byte, error) {
			reads.Add(1)
			<-hangs
			return i.read(ctx)
		}
		i.has(set(t, one.jwk(), two.jwk()), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tokens.Keys.Run(ctx) }()
		time.Sleep(10 * time.Second)
		start := time.Now()
		for range 100 {
			tokens.check(t, one.sign(t, good()), "")
			if _, err := tokens.Verify(t.Context(), two.sign(t, good()), time.Now()); !errors.Is(err, ErrNoKeys) {
				t.Error(err)
			}
		}
		if time.Since(start) != 0 || reads.Load() != 1 || len(log.Lines("level=WARN")) != 1 {
			t.Error(time.Since(start), reads.Load(), log.String())
		}
		close(hangs)
		synctest.Wait()
		tokens.check(t, two.sign(t, good()), "")
		cancel()
		<-done
	})
	within(t, "keys are read every now and then", func(t *testing.T) {
		i := &issuer{err: errors.New("no route")}
		tokens := i.tokens(&logBook{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tokens.Keys.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		if n := i.count(); n != 6 {
			t.Errorf("the issuer has no keys, and was read %d times", n)
		}
		i.has(set(t, one.jwk()), nil)
		time.Sleep(21 * time.Minute)
		if n := i.count(); n != 6+1+4 {
			t.Errorf("since it has keys, the issuer was read %d times", n-6)
		}
		cancel()
		<-done
	})
}

func TestKeySets(t *testing.T) {
	s := newSigner(t, "k", jose.RS256).jwk()
	private := newSigner(t, "private", jose.ES256)
	small := jose.JSONWebKey{}
	if err := small.UnmarshalJSON([]byte(`{"kty":"RSA","kid":"small","n":"` + strings.Repeat("q", 171) + `","e":"AQAB"}`)); err != nil {
		t.Fatal(err)
	}
	oct := map[string]string{"kty": "oct", "kid": "o", "k": "AAAA"}
	enc := s
	enc.Use = "enc"
	odd := s
	odd.Use = "tls"
	for name, tt := range map[string]struct {
		set     []byte
		keys    int
		skipped string // the whole text
		err     string
	}{
		"good":                  {set(t, s), 1, "", ""},
		"for encryption":        {set(t, s, enc), 1, "", ""},
		"for something else":    {set(t, s, odd), 1, "", ""},
		"symmetric":             {set(t, oct, s), 1, `key 0 ("o"): it is symmetric`, ""},
		"private":               {set(t, jose.JSONWebKey{Key: private.key, KeyID: "p"}, s), 1, `key 0 ("p"): it is a private key`, ""},
		"short":                 {set(t, small, s), 1, `key 0 ("small"): an RSA key needs 2048 to 8192 bits, and has 10`, ""},
		"of a kind of tomorrow": {set(t, map[string]string{"kty": "XYZ"}, s), 1, `key 0 (""): it is malformed or of an unknown type`, ""},
		"no object":             {set(t, 7, "x", nil, s), 1, `malformed`, ""},
		"symmetric alone":       {set(t, oct), 0, "", `has no usable key for signatures: key 0 ("o"): it is symmetric`},
		"none":                  {[]byte(`{"keys":[]}`), 0, "", ""},
		"no list":               {[]byte(`{}`), 0, "", "has no usable key"},
		"null for a list":       {[]byte(`{"keys":null}`), 0, "", "has no usable key"},
		"encryption alone":      {set(t, enc), 0, "", "has no usable key"},
		"null":                  {[]byte(`null`), 0, "", "has no usable key"},
		"an error page":         {[]byte(`<html>`), 0, "", "is not a JSON Web Key Set"},
		"keys of no list":       {[]byte(`{"keys":{}}`), 0, "", "is not a JSON Web Key Set"},
		"a point on no curve":   {[]byte(`{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":"AAAA","y":"AAAA"}]}`), 0, "", "malformed"},
		"many":                  {[]byte(`{"keys":[` + strings.Repeat(`{},`, 100) + `{}]}`), 0, "", "has 101 keys: at most 100"},
		"deep":                  {[]byte(strings.Repeat(`{"keys":[`, 100_000)), 0, "", "is not a JSON Web Key Set"},
	} {
		t.Run(name, func(t *testing.T) {
			got, skipped, err := parseKeys(tt.set)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || len(got.keys) != tt.keys || !strings.Contains(strings.Join(skipped, "\n"), tt.skipped) || (tt.skipped == "") != (len(skipped) == 0) {
				t.Errorf("%v, %q, %v", got, skipped, err)
			}
		})
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// An unchanged key set is logged once, at the start.
func TestUnchangedKeysAreLoggedOnce(t *testing.T) {
	within(t, "OBS-5 of a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jwks.json")
		if err := os.WriteFile(path, set(t, newSigner(t, "1", jose.ES256).jwk()), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		k, err := OpenKeys(t.Context(), path, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		k.fetch()
		k.fetch()
		if n := strings.Count(log.String(), "keys of --jwks loaded"); n != 1 {
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

func TestKeysFromFile(t *testing.T) {
	one, two := newSigner(t, "1", jose.ES256), newSigner(t, "2", jose.EdDSA)
	path := filepath.Join(t.TempDir(), "jwks.json")
	if _, err := OpenKeys(t.Context(), path, discard()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	if _, err := OpenKeys(t.Context(), filepath.Dir(path), discard()); err == nil || !strings.Contains(err.Error(), "a directory, not a regular file") {
		t.Error(err)
	}
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(make([]byte, maxKeySet+1))
	if _, err := OpenKeys(t.Context(), path, discard()); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Error(err)
	}
	write([]byte("{}"))
	if _, err := OpenKeys(t.Context(), path, discard()); err == nil || !strings.Contains(err.Error(), "no usable key") {
		t.Error(err)
	}
	write(set(t, one.jwk()))
	k, err := OpenKeys(t.Context(), path, discard())
	if err != nil {
		t.Fatal(err)
	}
	tokens := &Tokens{Issuer: "https://issuer.example", Audiences: []string{"chancery"}, Keys: k}
	tokens.check(t, one.sign(t, good()), "")
	write(set(t, two.jwk()))
	tokens.check(t, two.sign(t, good()), "")
	tokens.check(t, one.sign(t, good()), "does not have")
}

func TestKeysFromURL(t *testing.T) {
	one := newSigner(t, "1", jose.ES256)
	keys := set(t, one.jwk())
	var asked atomic.Int32
	var plain *httptest.Server
	plain = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/good":
			w.Write(keys)
		case "/moved":
			http.Redirect(w, r, plain.URL+"/good", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		default:
			http.Error(w, "token=SECRET", http.StatusTeapot)
		}
	}))
	defer plain.Close()
	for path, want := range map[string]string{
		"/good": "", "/good?token=SECRET": "", "/moved": "",
		"/loop": "too many redirects", "/away": "a redirect to plain text", "/endless": "more than 1048576 bytes", "/else": "HTTP status 418 I'm a teapot",
	} {
		log := &logBook{}
		k, err := OpenKeys(t.Context(), plain.URL+path, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Error(path, err)
			continue
		}
		tokens := &Tokens{Issuer: "https://issuer.example", Audiences: []string{"chancery"}, Keys: k}
		_, err = tokens.Verify(t.Context(), one.sign(t, good()), time.Now())
		if want == "" && err != nil || want != "" && !errors.Is(err, ErrNoKeys) || len(log.Lines(want)) == 0 || len(log.Lines("SECRET")) > 0 {
			t.Error(path, err, log.String())
		}
	}
	if n := asked.Load(); n > 12 {
		t.Errorf("%d requests", n)
	}
	for url, want := range map[string]string{
		"http://issuer.example/keys":      "is plain text",
		"https://u:p@issuer.example/":     "a user is not supported",
		"ftp://issuer.example/":           `the scheme "ftp://" is not supported`,
		"https:///keys":                   "has no host",
		"https://issuer.example:x/":       "is malformed",
		"http://localhost.evil.example/":  "is plain text",
		"http://127.0.0.1.evil.example/x": "is plain text",
	} {
		if _, err := OpenKeys(t.Context(), url, discard()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// A token without a key ID costs at most a few verifications, even if there are many keys.
func TestFewKeysAreTried(t *testing.T) {
	key := newSigner(t, "k", jose.ES256).jwk()
	all := make([]any, 2*maxTried)
	for i := range all {
		all[i] = key
	}
	keys, _, err := parseKeys(set(t, all...))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "k"} {
		if n := len(keys.match(id, jose.ES256)); n != maxTried {
			t.Errorf("%d keys for %q", n, id)
		}
	}
}

// A redirect from https to http is refused, even to this machine.
func TestNoRedirectToPlainText(t *testing.T) {
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	tr := http.DefaultTransport.(*http.Transport)
	before := tr.TLSClientConfig
	tr.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	defer func() { tr.TLSClientConfig = before }()
	u, err := CheckURL(secure.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := webReader(u)(t.Context()); err == nil || !strings.Contains(err.Error(), "a redirect to plain text") || asked {
		t.Error(err, asked)
	}
}
