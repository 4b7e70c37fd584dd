package real

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// makeCertificates writes the certificates of the API servers and their administrator, the signing key
// of tokens, and a CA without any certificates.
func makeCertificates(t *testing.T, dir string) {
	t.Helper()
	ca := authority(t, dir, "ca")
	authority(t, dir, "stranger")
	ca.certify(t, dir, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	// "system:masters … are allowed unrestricted access": https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles
	ca.certify(t, dir, "admin", &x509.Certificate{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	newKey(t, dir, "tokens")
}

// An issuer issues certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func authority(t *testing.T, dir, name string) *issuer {
	t.Helper()
	a := &issuer{key: newKey(t, dir, name)}
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.issue(t, dir, name, a.cert, a.key)
	return a
}

func (a *issuer) certify(t *testing.T, dir, name string, c *x509.Certificate) {
	t.Helper()
	c.KeyUsage = x509.KeyUsageDigitalSignature
	a.issue(t, dir, name, c, newKey(t, dir, name))
}

func (a *issuer) issue(t *testing.T, dir, name string, c *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", der)
}

func newKey(t *testing.T, dir, name string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der)
	return key
}

func save(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
