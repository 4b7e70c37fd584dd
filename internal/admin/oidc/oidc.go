// Package oidc authenticates callers of the admin API by OpenID Connect: a browser by the authorization code flow
// with PKCE, and a script by an ID token of the issuer.
package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/admin/session"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/text"
)

// A Config is the configuration of the issuer's client.
type Config struct {
	roles.OIDC
	Secret string // of the client; "": browsers cannot sign in
	CA     string // in PEM, instead of the CAs of the system; "": those
}

// askTime limits a request to the issuer.
const askTime = 10 * time.Second

// again is the shortest time between two reads of the issuer's configuration, or of its keys.
const again = 5 * time.Second

// A Provider is an issuer. It is safe for concurrent use. It reads the issuer's configuration at the first use, because
// the server must start without the issuer.
type Provider struct {
	config Config
	client *http.Client // for requests to the issuer
	key    session.Key
	reads  disk.Reads
	known  atomic.Pointer[oidc.Provider]
	failed atomic.Pointer[string] // why the last read failed
}

// New returns a provider.
func New(c Config) *Provider {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true // the next request is minutes away
	t.MaxResponseHeaderBytes = 64 << 10
	if c.CA != "" {
		t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(c.CA))
	}
	return &Provider{config: c, client: &http.Client{Transport: carrier{t}, Timeout: askTime}, key: session.KeyOf(c.Issuer + "\x00" + c.ClientID + "\x00" + c.Secret)}
}

// Key returns the key of the sessions that began with this issuer; false if browsers cannot sign in.
func (p *Provider) Key() (session.Key, bool) { return p.key, p.config.Secret != "" }

// provider returns the issuer's configuration.
func (p *Provider) provider(ctx context.Context) (*oidc.Provider, error) {
	if known := p.known.Load(); known != nil {
		return known, nil
	}
	p.reads.Do(ctx, time.Now(), again, func() {
		reader := &http.Client{Transport: &answers{client: p.client}}
		known, err := oidc.NewProvider(oidc.ClientContext(context.Background(), reader), p.config.Issuer) // the keys are read later, too
		if err == nil && !isSecure(known.Endpoint()) {
			err = errors.New("an endpoint of its configuration is plain text")
		}
		if err != nil {
			p.failed.Store(new(text.Head(err.Error(), maxReason)))
			return
		}
		p.known.Store(known)
	})
	if known := p.known.Load(); known != nil {
		return known, nil
	}
	why := "it does not answer"
	if failed := p.failed.Load(); failed != nil {
		why = *failed
	}
	return nil, fmt.Errorf("the issuer %s: %s", p.config.Issuer, why)
}

// maxReason is the maximum size of an error text with texts of the issuer, in bytes.
const maxReason = 300

// isSecure reports whether no network can read the requests of browsers and of this server to the endpoints.
func isSecure(e oauth2.Endpoint) bool {
	for _, at := range []string{e.AuthURL, e.TokenURL} {
		if u, err := url.Parse(at); err != nil || !secure(u.Scheme, u.Host) {
			return false
		}
	}
	return true
}

// Verify returns what an ID token proves. The issuer must have signed it for this client or for a configured audience.
func (p *Provider) Verify(ctx context.Context, token string) (roles.Proof, error) {
	known, err := p.provider(ctx)
	if err != nil {
		return roles.Proof{}, err
	}
	is, err := known.Verifier(&oidc.Config{SkipClientIDCheck: true}).Verify(ctx, token)
	if err != nil {
		return roles.Proof{}, err
	}
	if !slices.ContainsFunc(is.Audience, func(a string) bool { return a == p.config.ClientID || slices.Contains(p.config.Audiences, a) }) {
		return roles.Proof{}, errors.New("the token is for another audience (aud)")
	}
	return proofOf(is)
}

// proofOf returns what a verified ID token proves.
func proofOf(is *oidc.IDToken) (roles.Proof, error) {
	var all map[string]any
	if err := is.Claims(&all); err != nil {
		return roles.Proof{}, err
	}
	proof := roles.Proof{Identity: access.Identity{Kind: access.JWT, Issuer: is.Issuer, Subject: is.Subject, Claims: all, Expires: is.Expiry}, Label: is.Subject}
	for _, claim := range []string{"email", "preferred_username"} {
		if name, _ := all[claim].(string); name != "" { // both may be of the user's choice, so the subject stays visible
			proof.Label = name + " (" + is.Subject + ")"
			break
		}
	}
	return proof, nil
}

// A transaction is a sign-in that has begun. The browser keeps it in a sealed cookie.
type transaction struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	To       string `json:"to"`
	Until    int64  `json:"until"` // seconds of Unix
}

// Within is how long a sign-in may take at the issuer.
const Within = 5 * time.Minute

const sealed = "oidc transaction"

// Begin begins a sign-in. It returns the URL of the issuer, and the value of the transaction's cookie. The argument back
// is the URL to which the issuer returns the browser, and to is the path that the browser shows afterwards.
func (p *Provider) Begin(ctx context.Context, back, to string) (at, cookie string, err error) {
	known, err := p.provider(ctx)
	if err != nil {
		return "", "", err
	}
	t := transaction{rand.Text(), rand.Text(), oauth2.GenerateVerifier(), to, time.Now().Add(Within).Unix()}
	content, _ := json.Marshal(t) // cannot fail
	at = p.oauth(known, back).AuthCodeURL(t.State, oidc.Nonce(t.Nonce), oauth2.S256ChallengeOption(t.Verifier))
	return at, session.Sealed(p.key, sealed, content), nil
}

func (p *Provider) oauth(known *oidc.Provider, back string) *oauth2.Config {
	return &oauth2.Config{ClientID: p.config.ClientID, ClientSecret: p.config.Secret, Endpoint: known.Endpoint(), RedirectURL: back,
		Scopes: append([]string{oidc.ScopeOpenID, "profile", "email"}, p.config.Scopes...)}
}

// Finish ends a sign-in with the parameters of the issuer's answer. It returns what the caller has proved, and the path
// to show. The path is "" if the answer is not of the sign-in that this browser has begun.
func (p *Provider) Finish(ctx context.Context, back, cookie string, answered url.Values) (proof roles.Proof, to string, err error) {
	state := answered.Get("state")
	content, ok := session.Opened(p.key, sealed, cookie)
	var t transaction
	switch {
	case !ok || json.Unmarshal(content, &t) != nil:
		return proof, "", errors.New("this browser has begun no sign-in")
	case time.Now().Unix() >= t.Until:
		return proof, "", fmt.Errorf("the sign-in took longer than %v", Within)
	case state == "" || !hmac.Equal([]byte(state), []byte(t.State)):
		return proof, "", errors.New("the issuer answers another sign-in (state)")
	}
	if why := answered.Get("error"); why != "" {
		return proof, t.To, fmt.Errorf("the issuer answers %q", text.Head(why, maxReason))
	}
	known, err := p.provider(ctx)
	if err != nil {
		return proof, t.To, err
	}
	answer, err := p.oauth(known, back).Exchange(oidc.ClientContext(ctx, p.client), answered.Get("code"), oauth2.VerifierOption(t.Verifier))
	if err != nil {
		return proof, t.To, errors.New("the issuer does not accept the code") // its error may have the secret
	}
	raw, _ := answer.Extra("id_token").(string)
	is, err := known.Verifier(&oidc.Config{ClientID: p.config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return proof, t.To, errors.New(text.Head(err.Error(), maxReason))
	}
	if is.Nonce != t.Nonce {
		return proof, t.To, errors.New("the issuer's token is of another sign-in (nonce)")
	}
	proof, err = proofOf(is)
	return proof, t.To, err
}
