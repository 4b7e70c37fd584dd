package oidc_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/oidc"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/auth/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An issuer is an OpenID provider with one user.
type issuer struct {
	t       *testing.T
	web     *httptest.Server
	handler http.Handler // of web
	key     *rsa.PrivateKey
	asked   url.Values // the last request for a sign-in
	claims  map[string]any
	nonce   string       // instead of that of the request
	huge    bool         // the configuration and the keys do not end
	reads   atomic.Int32 // of the keys
	other   string       // base of the URL of the token endpoint; "": that of the issuer
	aud     string       // audience of the tokens of sign-ins; "": chancery
}

const clientSecret = "the secret of the client"

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key, claims: map[string]any{"groups": []string{"dev", "sre"}, "email": "ana@example.com", "other": strings.Repeat("x", 5000)}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		for n := 0; i.huge && n < 64; n++ {
			_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": i.web.URL, "authorization_endpoint": i.web.URL + "/auth", "token_endpoint": cmp.Or(i.other, i.web.URL) + "/token", "jwks_uri": i.web.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.reads.Add(1)
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		id, secret, _ := r.BasicAuth()
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if id != "chancery" || secret != url.QueryEscape(clientSecret) || r.Form.Get("code") != "code" || r.Form.Get("redirect_uri") != i.asked.Get("redirect_uri") ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != i.asked.Get("code_challenge") || i.asked.Get("code_challenge_method") != "S256" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		nonce := i.asked.Get("nonce")
		if i.nonce != "" {
			nonce = i.nonce
		}
		answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.token(cmp.Or(i.aud, "chancery"), time.Hour, nonce, i.key)})
	})
	i.handler, i.web = mux, httptest.NewServer(mux)
	t.Cleanup(i.web.Close)
	return i
}

// token returns an ID token for an audience.
func (i *issuer) token(audience string, valid time.Duration, nonce string, key *rsa.PrivateKey) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		i.t.Fatal(err)
	}
	now := time.Now()
	text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: i.web.URL, Subject: "u1", Audience: jwt.Audience{audience}, Expiry: jwt.NewNumericDate(now.Add(valid)), IssuedAt: jwt.NewNumericDate(now)}).
		Claims(i.claims).Claims(map[string]any{"nonce": nonce}).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// server is an admin API whose callers of the group "sre" may operate the group "edge".
func (i *issuer) server(log io.Writer) (*admin.Server, *httptest.Server) {
	i.t.Helper()
	file := fmt.Sprintf("oidc: {issuer: %q, client_id: chancery, client_secret_file: /x, audiences: [scripts]}\nbindings:\n- {role: operate, groups: [edge], subjects: [{claims: {groups: sre}}]}\n", i.web.URL)
	p, problems := roles.Parse("roles.yaml", []byte(file), nil)
	if p == nil {
		i.t.Fatal(problems)
	}
	provider := oidc.New(oidc.Config{OIDC: *p.Issuer(), Secret: clientSecret})
	s := &admin.Server{
		Level: new(slog.LevelVar), Log: slog.New(slog.NewTextHandler(log, nil)), Version: api.VersionInfo{Version: "v1"},
		Roles: func() *roles.Policy { return p }, OIDC: func() admin.OIDC { return provider }, Identity: new(identity.Finder).Find,
	}
	web := httptest.NewServer(s.Handler(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	i.t.Cleanup(web.Close)
	return s, web
}

// A browser is an HTTP client with cookies that follows no redirects.
type browser struct {
	*http.Client
	t  *testing.T
	at string
}

func newBrowser(t *testing.T, at string) *browser {
	t.Helper()
	jar, _ := cookiejar.New(nil)
	return &browser{&http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t, at}
}

func (b *browser) get(path string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.at+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	resp, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// begin begins a sign-in, and returns the state that the issuer gets.
func (b *browser) begin(i *issuer, to string) string {
	b.t.Helper()
	resp, body := b.get("/api/v1/session/oidc?to=" + url.QueryEscape(to))
	at, err := url.Parse(resp.Header.Get("Location"))
	if resp.StatusCode != http.StatusFound || err != nil || !strings.HasPrefix(at.String(), i.web.URL+"/auth?") {
		b.t.Fatalf("%s %s", resp.Status, body)
	}
	i.asked = at.Query()
	for _, c := range resp.Cookies() {
		if c.Name != "chancery-oidc" || c.SameSite != http.SameSiteLaxMode || !c.HttpOnly || c.MaxAge != 300 {
			b.t.Errorf("%+v", c)
		}
	}
	return i.asked.Get("state")
}

// fromIssuer are the headers of a browser that the issuer's page sends back.
var fromIssuer = []string{"Sec-Fetch-Site", "cross-site", "Accept", "text/html"}

func TestSignInByIssuer(t *testing.T) {
	t.Run("SAFE-20 a user signs in by an issuer", func(t *testing.T) {
		i := newIssuer(t)
		var log bytes.Buffer
		_, web := i.server(&log)
		b := newBrowser(t, web.URL)
		if _, body := b.get("/api/v1/session"); !strings.Contains(body, `"sign_in":["token","oidc"]`) {
			t.Error(body)
		}
		state := b.begin(i, "/clients?q=web")
		if i.asked.Get("nonce") == "" || i.asked.Get("scope") != "openid profile email" || i.asked.Get("redirect_uri") != web.URL+"/api/v1/session/oidc/callback" {
			t.Errorf("%v", i.asked)
		}
		resp, body := b.get("/api/v1/session/oidc/callback?code=code&state="+state, fromIssuer...)
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/clients?q=web" {
			t.Fatalf("%s %s", resp.Status, body)
		}
		if _, body := b.get("/api/v1/session"); !strings.Contains(body, `"name":"ana@example.com (u1)","roles":[{"role":"operate","groups":["edge"]}],"signed_in":true`) {
			t.Error(body)
		}
		if !strings.Contains(log.String(), `msg="operator signed in" by="ana@example.com (u1)"`) {
			t.Error(log.String())
		}
		// The transaction is over.
		if resp, _ := b.get("/api/v1/session/oidc/callback?code=code&state="+state, fromIssuer...); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the same answer again: %s", resp.Status)
		}
		// Only this request may come from another page.
		if resp, _ := b.get("/api/v1/session", fromIssuer...); resp.StatusCode != http.StatusForbidden {
			t.Errorf("SAFE-16 %s", resp.Status)
		}
		for _, to := range []string{"", "https://evil.example", "//evil.example", "/\\evil.example", "javascript:x"} {
			state := b.begin(i, to)
			if resp, _ := b.get("/api/v1/session/oidc/callback?code=code&state="+state, fromIssuer...); resp.Header.Get("Location") != "/" {
				t.Errorf("%q leads to %q", to, resp.Header.Get("Location"))
			}
		}
	})
}

// Answers of another sign-in, of another browser, and of a wrong issuer begin no session.
func TestForgedAnswersOfIssuer(t *testing.T) {
	t.Run("SAFE-20 forged answers of an issuer", func(t *testing.T) {
		i := newIssuer(t)
		_, web := i.server(io.Discard)
		another := newBrowser(t, web.URL).begin(i, "/")
		for name, c := range map[string]struct {
			query func(state string) string
			nonce string
			want  string
			aud   string
		}{
			"another state":    {func(string) string { return "code=code&state=" + another }, "", "another sign-in (state)", ""},
			"no state":         {func(string) string { return "code=code" }, "", "another sign-in (state)", ""},
			"a wrong code":     {func(state string) string { return "code=x&state=" + state }, "", "does not accept the code", ""},
			"an error":         {func(state string) string { return "error=access_denied&state=" + state }, "", "access_denied", ""},
			"another nonce":    {func(state string) string { return "code=code&state=" + state }, "n", "another sign-in (nonce)", ""},
			"another audience": {func(state string) string { return "code=code&state=" + state }, "", "audience", "scripts"}, // a token for a script
			"its right answer": {func(state string) string { return "code=code&state=" + state }, "", "", ""},
		} {
			b := newBrowser(t, web.URL)
			state := b.begin(i, "/")
			i.nonce, i.aud = c.nonce, c.aud
			resp, body := b.get("/api/v1/session/oidc/callback?"+c.query(state), fromIssuer...)
			_, is := b.get("/api/v1/session")
			if ok := c.want == ""; strings.Contains(is, `"signed_in":true`) != ok || !strings.Contains(body, c.want) || !ok && resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %s %s", name, resp.Status, body)
			}
			if strings.Contains(body, clientSecret) {
				t.Errorf("%s: the answer has the secret", name)
			}
		}
		b := newBrowser(t, web.URL)
		if resp, _ := b.get("/api/v1/session/oidc/callback?code=code&state="+another, fromIssuer...); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a browser without a transaction: %s", resp.Status)
		}
	})
}

// A sign-in at the issuer has a time limit, and the sessions depend on the secret of the client.
func TestTransactionEnds(t *testing.T) {
	i := newIssuer(t)
	config := oidc.Config{OIDC: roles.OIDC{Issuer: i.web.URL, ClientID: "chancery"}, Secret: clientSecret}
	synctest.Test(t, func(t *testing.T) {
		p := oidc.New(config)
		at, cookie, err := p.Begin(t.Context(), "https://h/back", "/")
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(at)
		time.Sleep(oidc.Within)
		if _, _, err := p.Finish(t.Context(), "https://h/back", cookie, url.Values{"state": u.Query()["state"], "code": {"code"}}); err == nil || !strings.Contains(err.Error(), "the sign-in took longer than 5m") {
			t.Errorf("SAFE-20 %v", err)
		}
		config.Secret += "2"
		if _, _, err := oidc.New(config).Finish(t.Context(), "https://h/back", cookie, url.Values{"state": u.Query()["state"], "code": {"code"}}); err == nil || !strings.Contains(err.Error(), "has begun no sign-in") {
			t.Errorf("SAFE-20 with another secret: %v", err)
		}
	})
	for secret, may := range map[string]bool{"": false, "x": true} {
		config.Secret = secret
		if _, ok := oidc.New(config).Key(); ok != may {
			t.Errorf("SAFE-20 a browser may sign in with the secret %q: %t", secret, ok)
		}
	}
}

// A browser gets the page with the reason of a failed sign-in, and not an answer for programs.
func TestPageShowsFailedSignIn(t *testing.T) {
	i := newIssuer(t)
	s, web := i.server(io.Discard)
	s.Page = fstest.MapFS{}
	b := newBrowser(t, web.URL)
	from := fromIssuer
	fails := func(what, path, to, want string) {
		t.Helper()
		resp, body := b.get(path, from...)
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != to {
			t.Errorf("SAFE-20 %s: %s to %q: %s", what, resp.Status, resp.Header.Get("Location"), body)
		}
		if _, is := b.get("/api/v1/session"); !strings.Contains(is, `"failed":"`+want) {
			t.Errorf("SAFE-20 %s: %s", what, is)
		}
		if _, is := b.get("/api/v1/session"); strings.Contains(is, "failed") {
			t.Errorf("SAFE-20 %s: the second answer has the reason: %s", what, is)
		}
	}
	state := b.begin(i, "/clients?q=web")
	fails("an answer of another sign-in", oidcBack+"?error=own+words", "/", "sign-in failed: the issuer answers another sign-in (state)")
	fails("the issuer's error", oidcBack+"?error=denied&state="+state, "/clients?q=web", `sign-in failed: the issuer answers \"denied\"`)
	fails("the same again", oidcBack+"?error=denied&state="+state, "/", "sign-in failed: this browser has begun no sign-in")
	// Another page can send a browser here, but neither ends its sign-in nor keeps it from the next one.
	state = b.begin(i, "/x")
	for range 20 {
		b.get(oidcBack+"?error=x", fromIssuer...)
	}
	if resp, body := b.get(oidcBack+"?code=code&state="+state, fromIssuer...); resp.Header.Get("Location") != "/x" {
		t.Errorf("SAFE-20 the sign-in after requests of another page: %s %s", resp.Status, body)
	}
	if _, is := b.get("/api/v1/session"); !strings.Contains(is, `"signed_in":true`) || strings.Contains(is, "failed") {
		t.Errorf("SAFE-20 %s", is)
	}
	broken := newIssuer(t)
	broken.web.Close()
	s, web = broken.server(io.Discard)
	s.Page, b, from = fstest.MapFS{}, newBrowser(t, web.URL), []string{"Accept", "text/html"}
	fails("an issuer that does not answer", "/api/v1/session/oidc?to=/y", "/y", "the issuer http://127.0.0.1:")
}

const oidcBack = "/api/v1/session/oidc/callback"

// A script sends an ID token.
func TestBearerIDToken(t *testing.T) {
	i := newIssuer(t)
	_, web := i.server(io.Discard)
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, web.URL)
	for name, c := range map[string]struct {
		token string
		code  int
	}{
		"for the client":       {i.token("chancery", time.Hour, "", i.key), 200},
		"for a known audience": {i.token("scripts", time.Hour, "", i.key), 200},
		"for another audience": {i.token("other", time.Hour, "", i.key), 401},
		"expired":              {i.token("chancery", -time.Hour, "", i.key), 401},
		"of another key":       {i.token("chancery", time.Hour, "", foreign), 401},
		"no token":             {"a.b.c", 401},
		"without a signature":  {strings.Join(strings.Split(i.token("chancery", time.Hour, "", i.key), ".")[:2], ".") + ".", 401},
	} {
		if resp, body := b.get("/version", "Authorization", "Bearer "+c.token); resp.StatusCode != c.code {
			t.Errorf("%s: %s %s", name, resp.Status, body)
		}
	}
	for range 20 {
		b.get("/version", "Authorization", "Bearer "+i.token("chancery", time.Hour, "", foreign))
	}
	if n := i.reads.Load(); n > 5 { // at most each 5 s
		t.Errorf("SAFE-20 tokens with unknown keys made the server read the keys %d times", n)
	}
	i.claims["groups"] = "dev"
	if resp, body := b.get("/version", "Authorization", "Bearer "+i.token("chancery", time.Hour, "", i.key)); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "ana@example.com (u1) lacks the role view") {
		t.Errorf("SAFE-19 %s %s", resp.Status, body)
	}
	i.web.Close()
	p, _ := roles.Parse("r", fmt.Appendf(nil, "oidc: {issuer: %q, client_id: c}\nbindings: [{role: view, subjects: [{uid: 0}]}]", i.web.URL), nil)
	if _, err := oidc.New(oidc.Config{OIDC: *p.Issuer()}).Verify(t.Context(), i.token("c", time.Hour, "", i.key)); err == nil || !strings.Contains(err.Error(), "the issuer "+i.web.URL) {
		t.Errorf("an issuer that does not answer: %v", err)
	}
}

// An issuer that sends endless answers, or names URLs in plain text, costs no memory and gets no secret.
func TestHostileIssuer(t *testing.T) {
	for name, set := range map[string]func(*issuer){
		"an endless configuration":     func(i *issuer) { i.huge = true },
		"a token endpoint without TLS": func(i *issuer) { i.other = "http://192.0.2.1" },
	} {
		t.Run("SAFE-20 "+name, func(t *testing.T) {
			i := newIssuer(t)
			set(i)
			_, web := i.server(io.Discard)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			resp, body := newBrowser(t, web.URL).get("/api/v1/session/oidc")
			runtime.ReadMemStats(&after)
			if resp.StatusCode != http.StatusBadGateway || len(body) > 1000 {
				t.Errorf("%s %.1000s", resp.Status, body)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
				t.Errorf("%d bytes for an answer", n)
			}
		})
	}
	t.Run("SAFE-20 endless keys", func(t *testing.T) {
		i := newIssuer(t)
		_, web := i.server(io.Discard)
		b := newBrowser(t, web.URL)
		b.begin(i, "/") // reads the configuration
		i.huge = true
		if resp, body := b.get("/version", "Authorization", "Bearer "+i.token("chancery", time.Hour, "", i.key)); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s %s", resp.Status, body)
		}
	})
}

// The certificate of an issuer must chain to the configured CA.
func TestCAOfIssuer(t *testing.T) {
	i := newIssuer(t)
	i.web.Close()
	i.web = httptest.NewUnstartedServer(i.handler)
	i.web.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.web.StartTLS()
	t.Cleanup(i.web.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.web.Certificate().Raw}))
	for ca, want := range map[string]string{"": "certificate signed by unknown authority", ca: ""} {
		_, err := oidc.New(oidc.Config{OIDC: roles.OIDC{Issuer: i.web.URL, ClientID: "chancery"}, CA: ca}).Verify(t.Context(), i.token("chancery", time.Hour, "", i.key))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("SAFE-20 %v, want %s", err, want)
		}
	}
}
