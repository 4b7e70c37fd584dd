// Package certs provides TLS for a server from certificate files that may change while it runs. It
// does not watch the files: a handshake checks whether they changed, at most once a second, and [Source.Run] does it
// without handshakes. If their file system hangs, one goroutine waits for it, and handshakes use the last valid content.
package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/faults"
)

// Files are the paths of PEM files.
type Files struct {
	Cert string // the server's certificate, followed by its intermediate certificates
	Key  string // its private key

	// ClientCA has the roots for certificates of clients. If it is "", clients need no certificate.
	ClientCA string
	Optional bool // clients need no certificate; those that they send are verified
}

// Configured reports whether any path is set.
func (f Files) Configured() bool { return f != Files{} }

// paths returns the paths that are set.
func (f Files) paths() []string {
	if f.ClientCA == "" {
		return []string{f.Cert, f.Key}
	}
	return []string{f.Cert, f.Key, f.ClientCA}
}

// every is the shortest time between two checks of the files.
const every = time.Second

// lookEvery is the time between two checks without handshakes. It is long enough for a program that writes one file
// after the other.
const lookEvery = 5 * time.Second

// A Source keeps the last valid content of the files. It is safe for concurrent use. [Open] makes
// one.
type Source struct {
	files Files
	log   *slog.Logger
	now   func() time.Time // replaced by tests

	current atomic.Pointer[tls.Config]
	checks  disk.Reads
	fault   faults.Record // the last content is invalid

	// The running check owns these fields.
	stampsOf func(paths []string) []fs.FileInfo // replaced by tests
	read     time.Time
	stamps   []fs.FileInfo // taken just before the read
	sum      sum           // sum of the content of the last read, valid or not
	warned   int           // number of logged warnings of the expiry
}

// Open reads the files. Later changes are logged: one line for each new content.
func Open(f Files, log *slog.Logger) (*Source, error) {
	switch {
	case f.Cert == "":
		return nil, errors.New("TLS: a certificate is missing")
	case f.Key == "":
		return nil, errors.New("TLS: the certificate's private key is missing")
	}
	s := &Source{files: f, log: log, now: time.Now, stampsOf: stampsOf}
	s.read = s.now()
	s.stamps = stampsOf(f.paths())
	content, sum, err := read(f)
	if err != nil {
		return nil, err
	}
	c, skipped, err := content.config()
	if err != nil {
		return nil, err
	}
	warnSkipped(log, f.ClientCA, skipped)
	s.sum = sum
	s.current.Store(c)
	s.warn(s.read)
	return s, nil
}

// FirstExpiry returns when the first certificate of the server's chain expires.
func (s *Source) FirstExpiry() (at time.Time) {
	for _, der := range s.current.Load().Certificates[0].Certificate {
		if c, err := x509.ParseCertificate(der); err == nil && (at.IsZero() || c.NotAfter.Before(at)) {
			at = c.NotAfter
		}
	}
	return at
}

// warn logs once that a certificate expires soon, and once that it has expired.
func (s *Source) warn(now time.Time) {
	const soon, ended = 1, 2
	switch at := s.FirstExpiry(); {
	case !now.Before(at) && s.warned < ended:
		s.warned = ended
		s.log.Warn("the certificate of --tls-cert has expired: clients refuse it", "not_after", at, "file", s.files.Cert)
	case at.Sub(now) <= secrets.Soon && s.warned < soon:
		s.warned = soon
		s.log.Warn("the certificate of --tls-cert expires soon", "not_after", at, "file", s.files.Cert)
	}
}

// Config returns the TLS configuration of a server: TLS 1.2 or newer and HTTP/2. Client certificates
// are required and verified if there is a CA for them.
func (s *Source) Config() *tls.Config {
	c := s.current.Load().Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		s.refresh(hello.Context())
		return s.current.Load(), nil
	}
	return c
}

// Run checks the files until ctx is done, so that the log and [Source.Faults] have an invalid file before the next
// handshake.
func (s *Source) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.refresh(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Faults returns the reason why the last content of the files is not in use. A nil source has none.
func (s *Source) Faults() []faults.Fault {
	if s == nil {
		return nil
	}
	return s.fault.Present()
}

// refresh reads the files if they changed.
func (s *Source) refresh(ctx context.Context) {
	now := s.now()
	if _, first := s.checks.Do(ctx, now, every, func() { s.check(now) }); first {
		s.log.Warn("a read of the TLS files does not end, using the last ones", "after", disk.ReadTime.String(), "file", s.files.Cert, "not_after", s.FirstExpiry())
	}
}

func (s *Source) check(now time.Time) {
	defer s.warn(now)
	stamps := s.stampsOf(s.files.paths())
	if same(stamps, s.stamps, s.read) {
		return
	}
	s.read, s.stamps = now, stamps
	content, sum, err := read(s.files)
	if err != nil {
		// An error counts as content. So the same error is logged once.
		sum = sha256.Sum256([]byte(err.Error()))
	}
	if sum == s.sum {
		return
	}
	s.sum = sum
	var c *tls.Config
	var skipped []string
	if err == nil {
		c, skipped, err = content.config()
	}
	s.fault.Set(invalid, err)
	if err != nil {
		s.log.Error(invalid, "error", err)
		return
	}
	s.current.Store(c)
	s.warned = 0
	leaf := c.Certificates[0].Leaf
	s.log.Info("TLS files changed", "subject", leaf.Subject.String(), "not_after", leaf.NotAfter)
	warnSkipped(s.log, s.files.ClientCA, skipped)
}

const invalid = "new TLS files are invalid: keeping the previous ones"
