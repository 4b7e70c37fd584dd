package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/internal/auth/access"
)

func uri(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

// over returns the context of a call on a connection.
func over(t *testing.T, info credentials.AuthInfo, more ...string) context.Context {
	return metadata.NewIncomingContext(peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: info}), metadata.Pairs(more...))
}

func chain(leaf *x509.Certificate, rest ...time.Time) []*x509.Certificate {
	all := []*x509.Certificate{leaf}
	for _, end := range rest {
		all = append(all, &x509.Certificate{NotAfter: end})
	}
	return all
}

func tlsOf(chains ...[]*x509.Certificate) credentials.TLSInfo {
	return credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: chains}}
}

func TestFindIdentity(t *testing.T) {
	now := time.Now()
	hour := now.Add(time.Hour)
	leaf := &x509.Certificate{NotAfter: hour, DNSNames: []string{"edge-1.example", "spiffe://fake/a"}, URIs: []*url.URL{uri("spiffe://example/ns/a/edge-1")}}
	leaf.Subject.CommonName = "edge"
	certified := access.Identity{Kind: access.MTLS, DNS: leaf.DNSNames, URIs: []string{"spiffe://example/ns/a/edge-1"}, Subject: "CN=edge", Expires: hour}
	s := newSigner(t, "k", jose.ES256)
	i := &issuer{bytes: set(t, s.jwk())}
	exp := now.Add(30 * time.Minute).Truncate(time.Second)
	token := s.sign(t, good(claims{"exp": exp.Unix(), "sub": "spiffe://example/b"}))
	with := func(f func(*access.Identity)) access.Identity { id := certified; f(&id); return id }
	for name, tt := range map[string]struct {
		f    Finder
		ctx  context.Context
		want access.Identity
		err  bool
	}{
		"SAFE-13 no connection":                              {ctx: t.Context()},
		"SAFE-13 plain text":                                 {ctx: over(t, nil)},
		"SAFE-13 TLS without a certificate":                  {ctx: over(t, tlsOf())},
		"SAFE-13 a certificate that nobody verified":         {ctx: over(t, credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}})},
		"SAFE-13 a certificate":                              {ctx: over(t, tlsOf(chain(leaf, hour.Add(1)))), want: certified},
		"SAFE-13 its authority expires before it":            {ctx: over(t, tlsOf(chain(leaf, now.Add(time.Minute)))), want: with(func(id *access.Identity) { id.Expires = now.Add(time.Minute) })},
		"SAFE-13 two ways to a root":                         {ctx: over(t, tlsOf(chain(leaf, now.Add(time.Minute)), chain(leaf, now.Add(2*time.Minute)))), want: with(func(id *access.Identity) { id.Expires = now.Add(2 * time.Minute) })},
		"SAFE-13 an expired certificate":                     {ctx: over(t, tlsOf(chain(&x509.Certificate{NotAfter: now.Add(-1)}))), err: true},
		"SAFE-13 a process":                                  {ctx: over(t, Process{UID: 7, GID: 8, PID: 9}), want: access.Identity{Kind: access.Unix, UID: 7, GID: 8, PID: 9}},
		"SAFE-13 a token that is not looked at":              {ctx: over(t, tlsOf(chain(leaf)), "authorization", "nonsense"), want: certified},
		"SAFE-13 no token":                                   {f: Finder{Tokens: i.tokens(&logBook{})}, ctx: over(t, tlsOf(chain(leaf))), want: certified},
		"SAFE-13 a bad token counts more than a certificate": {f: Finder{Tokens: i.tokens(&logBook{})}, ctx: over(t, tlsOf(chain(leaf)), "authorization", "nonsense"), err: true},
		"SAFE-13 a token": {f: Finder{Tokens: i.tokens(&logBook{})}, ctx: over(t, tlsOf(chain(leaf)), "authorization", "Bearer "+token), want: access.Identity{
			Kind: access.JWT, URIs: []string{"spiffe://example/b"}, Subject: "spiffe://example/b", Issuer: "https://issuer.example", Expires: exp.Add(leeway),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.f.Find(tt.ctx)
			got.Claims = nil
			if (err != nil) != tt.err || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
			if refused := (&Refused{}); err != nil && !errors.As(err, &refused) {
				t.Errorf("%T", err)
			}
		})
	}
}

func TestUnixPeer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	want := access.Identity{Kind: access.Unix, UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid()}
	conn, info, err := UnixCredentials().Clone().ServerHandshake(raw)
	if err != nil || conn != raw {
		t.Fatal(conn, err)
	}
	if got, err := new(Finder).Find(over(t, info)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("SAFE-13 %+v, %v", got, err)
	}
	if got, err := new(Finder).Find(ConnContext(t.Context(), raw)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("SAFE-13 over HTTP: %+v, %v", got, err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	d, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, other := range []net.Conn{d, a} {
		if p := processOf(other); p != nil {
			t.Errorf("%T: %+v", other, p)
		}
		if _, info, err := UnixCredentials().ServerHandshake(other); err != nil {
			t.Error(err)
		} else if _, ok := info.(Process); ok {
			t.Error(info)
		}
	}
}

// A handshake is a fake whose certificate expires at a given time.
type handshake struct {
	credentials.TransportCredentials
	info credentials.AuthInfo
}

func (h handshake) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, h.info, nil
}

func TestConnectionClosesBeforeCertificate(t *testing.T) {
	open := func(t *testing.T, info credentials.AuthInfo) (server, client net.Conn) {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		conn, _, err := Expiring(handshake{info: info}).ServerHandshake(a)
		if err != nil {
			t.Fatal(err)
		}
		return conn, b
	}
	within(t, "SAFE-13 a connection ends a little before its certificate, not with others", func(t *testing.T) {
		ends := map[time.Duration]bool{}
		start := time.Now()
		for range 20 {
			_, client := open(t, tlsOf(chain(&x509.Certificate{NotAfter: start.Add(time.Hour)})))
			begin := time.Now()
			left := start.Add(time.Hour).Sub(begin)
			if _, err := client.Read(make([]byte, 1)); err == nil {
				t.Error("it lives")
			}
			took := time.Since(begin)
			if took < left-maxEarly || took < left*9/10 || took > left {
				t.Errorf("%v of %v", took, left)
			}
			ends[took] = true
			if start = time.Now().Add(time.Hour); len(ends) == 0 {
				break
			}
		}
		if len(ends) < 10 {
			t.Error(ends)
		}
	})
	within(t, "SAFE-13 one that is over is closed at once, others never", func(t *testing.T) {
		conn, client := open(t, tlsOf(chain(&x509.Certificate{NotAfter: time.Now().Add(-time.Hour)})))
		_, _ = client.Read(make([]byte, 1))
		conn.Close()
		conn, client = open(t, tlsOf())
		time.Sleep(1000 * time.Hour)
		go func() { _, _ = conn.Write([]byte("x")) }()
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
	within(t, "closed before, it leaves no timer", func(t *testing.T) {
		conn, _ := open(t, tlsOf(chain(&x509.Certificate{NotAfter: time.Now().Add(time.Hour)})))
		if conn.Close(); conn.(mortal).timer.Stop() {
			t.Error("the timer is still running")
		}
	})
}
