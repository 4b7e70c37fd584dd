package certs

import (
	"cmp"
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
// [ClientFiles.Every]. If the files are invalid, or a read does not end within [disk.ReadTime], the
// last valid content stays in use, and the log gets a line; the log may be nil. If there was no valid
// content yet, the connection fails.
func ClientCredentials(f ClientFiles, log *slog.Logger) credentials.TransportCredentials {
	return &clientCredentials{source: newClientSource(f, log)}
}

// A clientSource keeps the last valid content of the files.
type clientSource struct {
	files ClientFiles
	log   *slog.Logger
	read  func() (c *tls.Config, skipped []string, err error) // replaced by tests
	reads disk.Reads

	skip []string // the unusable certificates of the CA file at the last valid read; the running read owns it

	mu   sync.Mutex // not held during I/O
	good *tls.Config
	err  error // of the last read
}

// ClientConfig returns a function that returns the TLS configuration of a client for a new connection. It
// reads the files as [ClientCredentials] does. The caller must not change the configuration.
func ClientConfig(f ClientFiles, log *slog.Logger) func(context.Context) (*tls.Config, error) {
	return newClientSource(f, log).config
}

func newClientSource(f ClientFiles, log *slog.Logger) *clientSource {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &clientSource{files: f, log: log, read: f.config, err: errors.New("TLS: the file system does not answer")}
}

func (s *clientSource) config(ctx context.Context) (*tls.Config, error) {
	good, _ := s.last()
	least := s.files.Every
	if good == nil {
		least = 0
	}
	_, first := s.reads.Do(ctx, time.Now(), least, s.look)
	good, err := s.last()
	if good == nil {
		return nil, err
	}
	if first {
		s.log.Warn("a read of the TLS files does not end, using the last ones", "after", disk.ReadTime.String(), "file", cmp.Or(s.files.Cert, s.files.CA))
	}
	return good, nil
}

// last returns the last valid content, and the error of the last read.
func (s *clientSource) last() (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good, s.err
}

func (s *clientSource) look() {
	c, skipped, err := s.read()
	good, before := s.last()
	switch {
	case err == nil:
		if !slices.Equal(skipped, s.skip) {
			warnSkipped(s.log, s.files.CA, skipped)
		}
		good, s.skip = c, skipped
	case good != nil && (before == nil || err.Error() != before.Error()):
		s.log.Error(invalid, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.good, s.err = good, err
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
	config, err := c.source.config(ctx)
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
