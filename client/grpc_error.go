package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// A StatusError is the reason why a gRPC stream ended or could not start.
type StatusError struct {
	Server string     // URI
	Code   codes.Code // the server's code, or gRPC's code for a failed connection
	Cause  string     // an explanation in plain English, then the server's message
	status *status.Status
	limit  error // the client's limit that a response exceeds; nil: none
}

// Unwrap returns an [xds.LimitError] if the stream ended because a response was too large.
func (e *StatusError) Unwrap() error { return e.limit }

// Error implements error: "xds://127.0.0.1:18000: Unavailable: no server listens there: …".
func (e *StatusError) Error() string { return e.Server + ": " + e.Code.String() + ": " + e.Cause }

// GRPCStatus returns the original status, for [status.FromError].
func (e *StatusError) GRPCStatus() *status.Status { return e.status }

// end returns the error of a stream that ended with err, and frees the stream.
func (s *grpcStream) end(err error) error {
	t := s.transport
	// If the stream's context has ended, the cause of the context is the reason.
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("%s: %w", t.uri, cause)
	}
	s.cancel(errStreamOver)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if t.closed.Load() {
		return fmt.Errorf("%s: %w", t.uri, errTransportClosed)
	}
	st, _ := status.FromError(err)
	e := &StatusError{Server: t.uri, Code: st.Code(), status: st}
	if size, most := tooLarge(st); size > 0 && most == t.options.MaxMessage {
		e.limit = xds.MemoryLimit{Bytes: most, Hint: cmp.Or(t.options.Limit.Hint, "MaxMessage")}.Exceeded(xds.LimitResponse, fmt.Sprintf("a response has %d bytes", size))
		e.Cause = e.limit.Error()
	} else {
		e.Cause = explain(st, s.method, t.answered.Load())
	}
	return e
}

// tooLarge returns the size and the limit of a message that is too large for one side; else zeros.
func tooLarge(st *status.Status) (size, limit int) {
	if at := strings.Index(st.Message(), "received message larger than max ("); at >= 0 && st.Code() == codes.ResourceExhausted {
		_, _ = fmt.Sscanf(st.Message()[at:], "received message larger than max (%d vs. %d)", &size, &limit)
	}
	return size, limit
}

// neverAnsweredHint is a hint for errors of a server that has never answered.
const neverAnsweredHint = "; it may require TLS, or not speak gRPC"

// phrases are parts of gRPC's messages about connections, with their meaning.
var phrases = []struct{ text, meaning string }{
	{"connection refused", "no server listens there"},
	{"no such host", "the host does not exist"},
	{"produced zero addresses", "the name has no address"},
	{"first record does not look like a TLS handshake", "the server does not speak TLS"},
	{"error reading server preface", "the server ended the connection at once" + neverAnsweredHint},
	{"broken pipe", "the server ended the connection"},
	{"connection reset by peer", "the server ended the connection"},
	{"certificate signed by unknown authority", "the client does not trust the authority of the server's certificate"},
	{"tls: certificate required", "the server requires a client certificate"},
	{"keepalive ping failed", "the server no longer answers"},
	{"too_many_pings", "the server allows fewer keepalive pings; use a longer keepalive time"},
	{"unexpected HTTP status code", "the server does not speak gRPC"},
	{"unexpected content-type", "the server does not speak gRPC"},
	{"authentication handshake failed", "the connection cannot be protected"},
}

// maxStatusText limits a server's message in an error, in bytes. A message may have 700 KB, and
// each log line about the error has the message.
const maxStatusText = 500

// explain returns the meaning of a status in plain English, followed by the server's message.
func explain(st *status.Status, method string, answered bool) string {
	message := text.Head(st.Message(), maxStatusText)
	for _, p := range phrases {
		if strings.Contains(st.Message(), p.text) {
			meaning := p.meaning
			if answered {
				meaning = strings.TrimSuffix(meaning, neverAnsweredHint)
			}
			return meaning + ": " + message
		}
	}
	switch st.Code() {
	case codes.ResourceExhausted:
		if size, limit := tooLarge(st); limit > 0 {
			return fmt.Sprintf("the server does not accept a request of %d bytes: its limit is %d", size, limit)
		}
	case codes.Unimplemented:
		return "the server does not implement " + method + ": " + message
	case codes.Unauthenticated, codes.PermissionDenied:
		return "the server does not accept this client: " + message
	}
	if message == "" {
		return "the server gave no reason"
	}
	return message
}
