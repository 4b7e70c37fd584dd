// Package certs is TLS for a server out of files that may change while it
// runs. There is no goroutine and no watch: a handshake looks whether the files
// have changed, if none did so within the last second.
package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// Files are the paths of PEM files.
type Files struct {
	Cert string // the server's certificate, and what leads from it to a root
	Key  string // its private key

	// ClientCA holds the certificates that those of clients must lead to. ""
	// asks clients for none.
	ClientCA string
}

// Configured reports whether any file is named.
func (f Files) Configured() bool { return f != Files{} }

// paths are the files that are named.
func (f Files) paths() []string {
	if f.ClientCA == "" {
		return []string{f.Cert, f.Key}
	}
	return []string{f.Cert, f.Key, f.ClientCA}
}

// every is how often files are looked at, at most.
const every = time.Second

// A Source holds the last good content of the files. It is safe for concurrent
// use; open it with [Open].
type Source struct {
	files Files
	log   *slog.Logger
	now   func() time.Time // replaced by tests

	current atomic.Pointer[tls.Config]

	checking sync.Mutex // held by the handshake that looks at the files; the others do not wait
	checked  time.Time
	read     time.Time
	stamps   []fs.FileInfo // from just before read
	sum      sum           // of the content read, good or bad
	warned   int           // how much of the end of the current certificate was told
}

// Open reads the files. What becomes of them later is told to the log: one line
// for each new content.
func Open(f Files, log *slog.Logger) (*Source, error) {
	switch {
	case f.Cert == "":
		return nil, errors.New("TLS: a certificate is missing")
	case f.Key == "":
		return nil, errors.New("TLS: the certificate's private key is missing")
	}
	s := &Source{files: f, log: log, now: time.Now}
	s.checked = s.now()
	s.read = s.checked
	s.stamps = stampsOf(f.paths())
	content, sum, err := read(f)
	if err != nil {
		return nil, err
	}
	c, err := content.config()
	if err != nil {
		return nil, err
	}
	s.sum = sum
	s.current.Store(c)
	s.warn(s.checked)
	return s, nil
}

// FirstExpiry returns when the first certificate ends of those that the server shows: its
// own, and what leads from it to a root.
func (s *Source) FirstExpiry() (at time.Time) {
	for _, der := range s.current.Load().Certificates[0].Certificate {
		if c, err := x509.ParseCertificate(der); err == nil && (at.IsZero() || c.NotAfter.Before(at)) {
			at = c.NotAfter
		}
	}
	return at
}

// warn tells that a certificate ends soon, and that it has ended: each once.
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

// Config returns the configuration of a server: TLS 1.2 or newer and HTTP/2,
// with client certificates required and verified if there is a CA for them.
func (s *Source) Config() *tls.Config {
	c := s.current.Load().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.refresh()
		return s.current.Load(), nil
	}
	return c
}

// refresh takes over what is new in the files.
func (s *Source) refresh() {
	if !s.checking.TryLock() {
		return
	}
	defer s.checking.Unlock()
	now := s.now()
	if since := now.Sub(s.checked); since >= 0 && since < every {
		return
	}
	s.checked = now
	defer s.warn(now)
	stamps := stampsOf(s.files.paths())
	if same(stamps, s.stamps, s.read) {
		return
	}
	s.read, s.stamps = now, stamps
	content, sum, err := read(s.files)
	if err != nil {
		// What cannot be read is content too: told once, until it changes.
		sum = sha256.Sum256([]byte(err.Error()))
	}
	if sum == s.sum {
		return
	}
	s.sum = sum
	var c *tls.Config
	if err == nil {
		c, err = content.config()
	}
	if err != nil {
		s.log.Error("new TLS files are invalid: keeping the previous ones", "error", err)
		return
	}
	s.current.Store(c)
	s.warned = 0
	leaf := c.Certificates[0].Leaf
	s.log.Info("TLS files changed", "subject", leaf.Subject.String(), "not_after", leaf.NotAfter)
}
