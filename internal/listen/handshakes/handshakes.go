// Package handshakes counts failed TLS handshakes by reason, and logs them. A client with a failed
// handshake appears nowhere else. The package makes no handshakes itself.
package handshakes

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
)

// A kind is a reason, and the error texts that have it. The match is by text, because net/http reports
// failures only as text.
type kind struct {
	reason string
	texts  []string
}

// kinds are the reasons. The first match counts.
var kinds = []kind{
	{"client_refuses", []string{"remote error: "}}, // an alert of the client, for example because it does not trust the server's certificate
	{"no_tls", []string{"first record does not look like a TLS handshake", "client sent an HTTP request"}},
	{"no_certificate", []string{"client didn't provide a certificate"}},
	{"expired", []string{"certificate has expired"}},
	{"unknown_ca", []string{"certificate signed by unknown authority"}},
	{"bad_certificate", []string{"x509: ", "certificate"}},
	{"no_agreement", []string{"unsupported versions", "no cipher suite", "no mutually supported", "application protocol", "ALPN", "no supported"}},
	{"timeout", []string{"timeout", "deadline exceeded"}},
	{closed, []string{"EOF", "connection reset", "broken pipe", "closed"}},
	{"other", nil}, // everything else
}

// closed is the reason of a connection that ends without an error message. Health checks of load
// balancers do that, so it is not a warning.
const closed = "closed"

// Failures counts and logs failed handshakes. The zero value is ready to use, and safe for concurrent
// use.
type Failures struct {
	Log *slog.Logger // nil: slog.Default()

	// Note is called for each failure, except those with the reason closed. Nil: no call. It must not
	// be set after the first handshake.
	Note func(peer, reason, text string)

	repeats dedup.Counter
	counts  [16]atomic.Uint64 // by index of kinds
}

// Counts returns the number of failures by reason. It has all reasons, also with the number 0.
func (f *Failures) Counts() map[string]uint64 {
	counts := make(map[string]uint64, len(kinds))
	for i, k := range kinds {
		counts[k.reason] = f.counts[i].Load()
	}
	return counts
}

// Credentials wraps credentials of a gRPC server, and reports failed handshakes to f.
func (f *Failures) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	return reporting{c, f}
}

type reporting struct {
	credentials.TransportCredentials
	failures *Failures
}

// ServerHandshake implements [credentials.TransportCredentials].
func (t reporting) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := t.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		t.failures.note(conn.RemoteAddr().String(), err.Error())
	}
	return secured, info, err
}

// Clone implements [credentials.TransportCredentials].
func (t reporting) Clone() credentials.TransportCredentials {
	return reporting{t.TransportCredentials.Clone(), t.failures}
}

// ErrorLog returns the error log for an http.Server. Failed handshakes are reported to f, and other
// lines are logged at level debug.
func (f *Failures) ErrorLog() *log.Logger { return log.New(lines{f}, "", 0) }

type lines struct{ *Failures }

// handshakeError matches the line of net/http for a failed handshake.
var handshakeError = regexp.MustCompile(`^http: TLS handshake error from (\S+): (.*)`)

// Write implements [io.Writer]. It gets one line per call.
func (l lines) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if m := handshakeError.FindStringSubmatch(text); m != nil {
		l.note(m[1], m[2])
	} else {
		l.log().Debug(text) //nolint:sloglint // the text is from net/http
	}
	return len(line), nil
}

func (f *Failures) log() *slog.Logger {
	if f.Log == nil {
		return slog.Default()
	}
	return f.Log
}

// few is how many lines of one reason are logged within 10 s. When the server's certificate has
// expired, all clients refuse it at once.
const few = 5

// note counts a failure and logs it: a few lines for each reason, and one line with the number of the
// rest.
func (f *Failures) note(peer, text string) {
	i := kindOf(text)
	defer f.counts[i].Add(1) // after the log line, so that a caller who sees the count finds the line
	reason, level := kinds[i].reason, slog.LevelWarn
	if reason == closed {
		level = slog.LevelDebug
	}
	if f.Note != nil && reason != closed {
		f.Note(peer, reason, text)
	}
	log := f.log()
	tell := func(level slog.Level, more ...slog.Attr) {
		log.LogAttrs(context.Background(), level, "TLS handshake failed",
			append([]slog.Attr{slog.String("peer", peer), slog.String("reason", reason), slog.String("error", text)}, more...)...)
	}
	if f.repeats.Allow("", reason, few, func(n int, _ []string) { tell(level, slog.Int("repeated", n)) }) {
		tell(level)
		return
	}
	tell(slog.LevelDebug)
}

// kindOf returns the index of the kind of an error text.
func kindOf(text string) int {
	for i, k := range kinds {
		for _, t := range k.texts {
			if strings.Contains(text, t) {
				return i
			}
		}
	}
	return len(kinds) - 1
}
