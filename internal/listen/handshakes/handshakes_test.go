package handshakes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A book is a log.
type book struct{ logtest.Log }

func (b *book) at(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level}))
}

func pair(t *testing.T, p tlstest.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pool(a *tlstest.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// OBS-4: mistakes of clients have a reason, as Go's TLS reports them to servers of gRPC and of HTTP.
func TestReasons(t *testing.T) {
	ca, stranger := tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "stranger")
	server := &tls.Config{Certificates: []tls.Certificate{pair(t, ca.Issue("s", "127.0.0.1"))}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(ca), MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	client := func(change func(*tls.Config)) func(net.Conn) {
		c := &tls.Config{RootCAs: pool(ca), ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair(t, ca.IssueUntil(time.Now().Add(time.Hour), "c"))}, NextProtos: []string{"h2"}}
		change(c)
		return func(conn net.Conn) {
			secured := tls.Client(conn, c)
			if secured.Handshake() == nil {
				_, _ = secured.Read(make([]byte, 1))
			}
		}
	}
	late := server.Clone()
	late.Time = func() time.Time { return time.Now().Add(24 * time.Hour) } // when the client certificate has expired
	for reason, c := range map[string]struct {
		client func(net.Conn)
		server *tls.Config
	}{
		"client_refuses": {client(func(c *tls.Config) { c.RootCAs = pool(stranger) }), server},
		"no_tls": {func(conn net.Conn) {
			_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
			_, _ = conn.Read(make([]byte, 1))
		}, server},
		"no_certificate": {client(func(c *tls.Config) { c.Certificates = nil }), server},
		"unknown_ca": {client(func(c *tls.Config) { // Go's clients do not send such a certificate by themselves
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return new(pair(t, stranger.Issue("c"))), nil
			}
		}), server},
		"expired":      {client(func(*tls.Config) {}), late},
		"no_agreement": {client(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 }), server},
		"closed":       {func(net.Conn) {}, server},
		"timeout":      {func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }, server},
	} {
		config := c.server
		shake := map[string]func(*Failures, net.Listener){
			"gRPC": func(f *Failures, l net.Listener) {
				creds := f.Credentials(credentials.NewTLS(config)).Clone()
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if reason == "timeout" {
					_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
				}
				if _, _, err := creds.ServerHandshake(conn); err == nil {
					t.Error("it succeeds")
				}
				_ = conn.Close()
			},
			"HTTP": func(f *Failures, l net.Listener) {
				h := &http.Server{TLSConfig: config, ErrorLog: f.ErrorLog(), ReadHeaderTimeout: 2 * time.Second}
				if reason == "timeout" {
					h.ReadHeaderTimeout = 50 * time.Millisecond
				}
				_ = h.ServeTLS(l, "", "")
			},
		}
		for name, serve := range shake {
			t.Run("OBS-4 "+name+" "+reason, func(t *testing.T) {
				var b book
				f := &Failures{Log: b.at(slog.LevelInfo)}
				l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() { defer close(done); serve(f, l) }()
				ends := sync.OnceFunc(func() { _ = l.Close(); <-done })
				defer ends()
				within, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a successful handshake is never counted
				defer cancel()
				conn, err := new(net.Dialer).DialContext(within, "tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				until, _ := within.Deadline()
				_ = conn.SetDeadline(until)
				c.client(conn)
				_ = conn.Close()
				for f.Counts()[reason] == 0 {
					next, cancel := context.WithTimeout(within, 5*time.Millisecond)
					<-next.Done()
					cancel()
					if n := total(f); n > f.Counts()[reason] || within.Err() != nil {
						t.Fatalf("not counted as %s: %v", reason, f.Counts())
					}
				}
				ends()
				lines := b.Lines("")
				if reason == closed {
					if len(lines) != 0 {
						t.Error(lines)
					}
				} else if len(lines) != 1 || !strings.Contains(lines[0], `level=WARN msg="TLS handshake failed" peer=127.0.0.1:`) || !strings.Contains(lines[0], "reason="+reason+" error=") {
					t.Error(lines)
				}
			})
		}
	}
}

func total(f *Failures) (n uint64) {
	for _, c := range f.Counts() {
		n += c
	}
	return n
}

// counted looks at each line before it is written.
type counted struct {
	slog.Handler
	look func()
}

func (c counted) Handle(ctx context.Context, r slog.Record) error {
	c.look()
	return c.Handler.Handle(ctx, r)
}

func TestNote(t *testing.T) {
	t.Run("OBS-4 a reason has a few lines, and one line counts the others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var b book
			f := &Failures{Log: b.at(slog.LevelInfo)}
			for range 100 {
				f.note("10.0.0.1:1", "remote error: tls: bad certificate")
				f.note("10.0.0.1:2", "EOF")
			}
			f.note("@", "what is this")
			if lines := b.Lines("WARN"); len(lines) != few+1 || len(b.Lines("")) != few+1 {
				t.Error(b.Lines(""))
			}
			time.Sleep(dedup.Within)
			synctest.Wait()
			if lines := b.Lines("repeated=95"); len(lines) != 1 || !strings.Contains(lines[0], "peer=10.0.0.1:1 reason=client_refuses") {
				t.Error(b.Lines(""))
			}
			if c := f.Counts(); c["client_refuses"] != 100 || c["closed"] != 100 || c["other"] != 1 || len(c) != len(kinds) {
				t.Error(c)
			}
			time.Sleep(dedup.Within)
		})
	})
	t.Run("OBS-4 level debug has all lines, and each counted failure already has its line", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var b book
			f := &Failures{Log: b.at(slog.LevelDebug)}
			f.Log = slog.New(counted{f.Log.Handler(), func() {
				if n, lines := total(f), len(b.Lines("")); n > uint64(lines) {
					t.Errorf("%d are counted, of %d there are lines", n, lines)
				}
			}})
			for range few + 3 {
				f.note("10.0.0.1:1", "remote error: tls: bad certificate")
			}
			if warned, all := len(b.Lines("WARN")), len(b.Lines("")); warned != few || all != few+3 {
				t.Errorf("%d warnings of %d lines", warned, all)
			}
			time.Sleep(2 * dedup.Within)
		})
	})
	t.Run("other lines of net/http have level debug", func(t *testing.T) {
		for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 1} {
			var b book
			f := &Failures{Log: b.at(level)}
			f.ErrorLog().Print("http: something else")
			if got := len(b.Lines("something else")); got != want || total(f) != 0 {
				t.Error(b.Lines(""), f.Counts())
			}
		}
	})
	if len(kinds) > len(new(Failures).counts) {
		t.Error("the array of counts is too small for all reasons")
	}
}
