package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/internal/disk"
)

// ClientFiles are the paths of PEM files of a client. All may be empty.
type ClientFiles struct {
	CA        string // roots for the server's certificate; "": the system's roots
	Cert, Key string // certificate and private key of the client; "": the client has none

	// Every is the shortest time between two reads of the files. Zero: each connection reads them.
	Every time.Duration
}

// ClientCredentials returns the credentials of a gRPC client from files. The files may change, and
// need not exist yet. A new connection reads the files if the last read is longer ago than
// [ClientFiles.Every]. If the files are invalid, the last valid content stays in use, and the log
// gets a line; the log may be nil. If there was no valid content yet, the connection fails.
func ClientCredentials(f ClientFiles, log *slog.Logger) credentials.TransportCredentials {
	return &clientCredentials{source: newClientSource(f, log)}
}

// A clientSource keeps the last valid content of the files.
type clientSource struct {
	files ClientFiles
	log   *slog.Logger
	now   func() time.Time // replaced by tests

	mu   sync.Mutex
	read time.Time
	good *tls.Config
	last string   // the error of the last read
	skip []string // the unusable certificates of the CA file at the last valid read
}

// ClientConfig returns a function that returns the TLS configuration of a client for a new connection. It
// reads the files as [ClientCredentials] does. The caller must not change the configuration.
func ClientConfig(f ClientFiles, log *slog.Logger) func() (*tls.Config, error) {
	return newClientSource(f, log).config
}

func newClientSource(f ClientFiles, log *slog.Logger) *clientSource {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &clientSource{files: f, log: log, now: time.Now}
}

func (s *clientSource) config() (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.good != nil && now.Sub(s.read) < s.files.Every {
		return s.good, nil
	}
	c, skipped, err := s.files.config()
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
	if !slices.Equal(skipped, s.skip) {
		warnSkipped(s.log, s.files.CA, skipped)
	}
	s.read, s.good, s.last, s.skip = now, c, "", skipped
	return c, nil
}

// Config reads the files. The log gets a warning for each unusable certificate of the CA file; it may be nil.
func (f ClientFiles) Config(log *slog.Logger) (*tls.Config, error) {
	c, skipped, err := f.config()
	if log != nil {
		warnSkipped(log, f.CA, skipped)
	}
	return c, err
}

func (f ClientFiles) config() (c *tls.Config, skipped []string, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if f.CA != "" {
		b, err := disk.ReadSecret(f.CA)
		if err != nil {
			return nil, nil, fmt.Errorf("TLS: %w", err)
		}
		c.RootCAs, skipped, err = Pool(b)
		if err != nil {
			return nil, nil, fmt.Errorf("TLS: %s: %w", f.CA, err)
		}
	}
	if f.Cert != "" {
		cert, err := disk.ReadSecret(f.Cert)
		key, other := disk.ReadSecret(f.Key)
		if err := errors.Join(err, other); err != nil {
			return nil, nil, fmt.Errorf("TLS: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, nil, fmt.Errorf("TLS: certificate %s, key %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, skipped, nil
}

// clientCredentials are TLS credentials that read their source for each connection.
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
	return nil, nil, errors.New("TLS: these credentials are for a client")
}

// Info implements [credentials.TransportCredentials].
func (c *clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements [credentials.TransportCredentials].
func (c *clientCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements [credentials.TransportCredentials].
func (c *clientCredentials) OverrideServerName(string) error {
	return errors.New("TLS: the server name is that of the target and cannot be overridden")
}
