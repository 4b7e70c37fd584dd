package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// ClientFiles are the paths of PEM files of a client. All may be empty.
type ClientFiles struct {
	CA        string // what the server's certificate leads to; "": the system's roots
	Cert, Key string // the client's certificate and its private key; "": it has none

	// Every is how often files are read again, at most. Zero: for each connection.
	Every time.Duration
}

// ClientCredentials are credentials of a client of gRPC out of files that may change, and need
// not be there yet: a connection reads them if the last one did so long ago. What cannot be
// read is an error of the connection, unless there was something good before: that stays, and
// the log is told, which may be nil.
func ClientCredentials(f ClientFiles, log *slog.Logger) credentials.TransportCredentials {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &clientCredentials{source: &clientSource{files: f, log: log, now: time.Now}}
}

// A clientSource holds the last good content.
type clientSource struct {
	files ClientFiles
	log   *slog.Logger
	now   func() time.Time // replaced by tests

	mu   sync.Mutex
	read time.Time
	good *tls.Config
	last string // what was wrong when the files were read last
}

func (s *clientSource) config() (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.good != nil && now.Sub(s.read) < s.files.Every {
		return s.good, nil
	}
	c, err := s.files.Config()
	if err != nil {
		if s.good == nil {
			return nil, err
		}
		if err.Error() != s.last {
			s.log.Error("new TLS files are invalid: keeping the previous ones", "error", err)
		}
		s.read, s.last = now, err.Error()
		return s.good, nil
	}
	s.read, s.good, s.last = now, c, ""
	return c, nil
}

// Config reads the files.
func (f ClientFiles) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if f.CA != "" {
		b, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		if c.RootCAs, err = Pool(b); err != nil {
			return nil, fmt.Errorf("TLS: %s: %w", f.CA, err)
		}
	}
	if f.Cert != "" {
		cert, err := os.ReadFile(f.Cert)
		key, other := os.ReadFile(f.Key)
		if err := errors.Join(err, other); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("TLS: certificate %s, key %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// clientCredentials are those of TLS, made for each connection.
type clientCredentials struct{ source *clientSource }

// ClientHandshake implements [credentials.TransportCredentials].
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.source.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("TLS: credentials of a client")
}

// Info implements [credentials.TransportCredentials].
func (c *clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements [credentials.TransportCredentials].
func (c *clientCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements [credentials.TransportCredentials].
func (c *clientCredentials) OverrideServerName(string) error {
	return errors.New("TLS: the server's name is that of its target")
}
