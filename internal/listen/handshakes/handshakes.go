// Package handshakes counts TLS handshakes that fail, by reason, and logs them: a client
// whose handshake fails is otherwise seen nowhere. It makes none itself.
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

// A kind is a reason, and the texts by which it is known. What net/http tells of a
// failure is a text.
type kind struct {
	reason string
	texts  []string
}

// kinds are the reasons, in the order in which they are looked for.
var kinds = []kind{
	{"client_refuses", []string{"remote error: "}}, // an alert: it does not trust the server's certificate, say
	{"no_tls", []string{"first record does not look like a TLS handshake", "client sent an HTTP request"}},
	{"no_certificate", []string{"client didn't provide a certificate"}},
	{"expired", []string{"certificate has expired"}},
	{"unknown_ca", []string{"certificate signed by unknown authority"}},
	{"bad_certificate", []string{"x509: ", "certificate"}},
	{"no_agreement", []string{"unsupported versions", "no cipher suite", "no mutually supported", "application protocol", "ALPN", "no supported"}},
	{"timeout", []string{"timeout", "deadline exceeded"}},
	{closed, []string{"EOF", "connection reset", "broken pipe", "closed"}},
	{"other", nil}, // whatever else
}

// closed is the reason of those that end without a word: a load balancer looks in this way
// whether somebody listens, so it is no warning.
const closed = "closed"

// Failures counts and logs. The zero value logs to slog.Default() and is ready to use; it
// is safe for concurrent use.
type Failures struct {
	Log *slog.Logger // nil: slog.Default()

	// Note is told of each, but for those that end without a word. Nil: nobody is. It must not
	// be set once there are handshakes.
	Note func(peer, reason, text string)

	repeats dedup.Counter
	counts  [16]atomic.Uint64 // by index of kinds
}

// Counts returns how many have failed, by reason. Each reason is there.
func (f *Failures) Counts() map[string]uint64 {
	counts := make(map[string]uint64, len(kinds))
	for i, k := range kinds {
		counts[k.reason] = f.counts[i].Load()
	}
	return counts
}

// Credentials returns credentials of a gRPC server that do as c, and tell f.
func (f *Failures) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	return told{c, f}
}

type told struct {
	credentials.TransportCredentials
	failures *Failures
}

// ServerHandshake implements [credentials.TransportCredentials].
func (t told) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := t.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		t.failures.note(conn.RemoteAddr().String(), err.Error())
	}
	return secured, info, err
}

// Clone implements [credentials.TransportCredentials].
func (t told) Clone() credentials.TransportCredentials {
	return told{t.TransportCredentials.Clone(), t.failures}
}

// ErrorLog returns what an http.Server logs its errors to: f is told of handshakes, and
// the rest is for those who debug.
func (f *Failures) ErrorLog() *log.Logger { return log.New(lines{f}, "", 0) }

type lines struct{ *Failures }

// handshakeError is how net/http says it.
var handshakeError = regexp.MustCompile(`^http: TLS handshake error from (\S+): (.*)`)

// Write implements [io.Writer]: it is given a line at a time.
func (l lines) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if m := handshakeError.FindStringSubmatch(text); m != nil {
		l.note(m[1], m[2])
	} else {
		l.log().Debug(text) //nolint:sloglint // it is net/http's
	}
	return len(line), nil
}

func (f *Failures) log() *slog.Logger {
	if f.Log == nil {
		return slog.Default()
	}
	return f.Log
}

// few is how many lines of a reason go into the log within 10 s: when the server's
// certificate has expired, all clients refuse it.
const few = 5

// note counts a failure, and logs it: a few lines for each reason, and one that counts the
// others.
func (f *Failures) note(peer, text string) {
	i := kindOf(text)
	defer f.counts[i].Add(1) // who sees it counted finds the line
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

// kindOf returns the index of the kind of a text.
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
