package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

// An authority signs certificates.
type authority struct {
	pair pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	p, cert, key := sign(t, name, elliptic.P256(), template, nil, nil)
	return authority{p, cert, key}
}

// issue signs a certificate for the loopback by that name, of either side.
func (a authority) issue(t *testing.T, name string) pair {
	t.Helper()
	return a.issueOn(t, name, elliptic.P256())
}

// issueOn is the same with a key on another curve.
func (a authority) issueOn(t *testing.T, name string, curve elliptic.Curve) pair {
	t.Helper()
	p, _, _ := sign(t, name, curve, &x509.Certificate{
		DNSNames:    []string{"e2e.example"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	return p
}

func sign(t *testing.T, name string, curve elliptic.Curve, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (pair, *x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, by = template, key
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, cert, key
}

// caller calls by TLS with a certificate of the authority, on one connection or on a new one each
// time, and trusts certificates signed by servers. The generation of its answers is the name in the
// server's certificate.
func (a authority) caller(t *testing.T, port int, keep bool, servers authority) caller {
	t.Helper()
	p := a.issue(t, "client")
	own, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(servers.cert)
	tr := &http.Transport{DisableKeepAlives: !keep, MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: "e2e.example",
	}}
	if !keep {
		tr.MaxConnsPerHost = 0
	}
	t.Cleanup(tr.CloseIdleConnections)
	return calls(secured{changed{tr, func(r *http.Request) { r.URL.Scheme = "https" }}}, port)
}

// secured adds the name in the server's certificate to each answer.
type secured struct{ http.RoundTripper }

func (s secured) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.TLS == nil {
		return nil, errors.New("no TLS")
	}
	resp.Header.Set("x-generation", resp.TLS.PeerCertificates[0].Subject.CommonName)
	return resp, nil
}

// newSecureUpstream is an upstream by TLS with a certificate of the authority,
// for clients of another.
func newSecureUpstream(t *testing.T, name string, by, clients authority) upstream {
	t.Helper()
	p := by.issue(t, name)
	own, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	s.TLS.ClientCAs.AddCert(clients.cert)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return upstream{name, s.Listener.Addr().(*net.TCPAddr).Port}
}
