package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/shorten"
)

// A StatusError says why a stream of gRPC ended, or could not begin.
type StatusError struct {
	Server string     // URI
	Code   codes.Code // as the server said it, or as gRPC calls what happened
	Cause  string     // for people
	status *status.Status
}

// Error implements error: "xds://127.0.0.1:18000: Unavailable: nobody listens there: …".
func (e *StatusError) Error() string { return e.Server + ": " + e.Code.String() + ": " + e.Cause }

// GRPCStatus returns the status as it came, for [status.FromError].
func (e *StatusError) GRPCStatus() *status.Status { return e.status }

// end returns the error of a stream that has ended by err, and frees it.
func (s *grpcStream) end(err error) error {
	t := s.transport
	// Who ended the stream by its context, or for a reason of our own, hears of that.
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("%s: %w", t.uri, cause)
	}
	s.cancel(errOver)
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if t.closed.Load() {
		return fmt.Errorf("%s: %w", t.uri, errClosed)
	}
	st, _ := status.FromError(err)
	return &StatusError{Server: t.uri, Code: st.Code(), Cause: explain(st, s.method, t.options.MaxMessage, t.answered.Load()), status: st}
}

// unlike is what a server may be that has never answered, and no other.
const unlike = "; it may want TLS, or not speak gRPC"

// phrases are what gRPC says of connections, and what that means.
var phrases = []struct{ has, means string }{
	{"connection refused", "nobody listens there"},
	{"no such host", "there is no such host"},
	{"produced zero addresses", "the name has no address"},
	{"first record does not look like a TLS handshake", "the server does not speak TLS"},
	{"error reading server preface", "the server ended the connection at once" + unlike},
	{"broken pipe", "the server ended the connection"},
	{"connection reset by peer", "the server ended the connection"},
	{"certificate signed by unknown authority", "the server's certificate is of an authority that the client does not trust"},
	{"tls: certificate required", "the server wants a certificate of the client"},
	{"keepalive ping failed", "the server no longer answers"},
	{"too_many_pings", "the server takes the client's keepalive for a flood; a longer one helps"},
	{"unexpected HTTP status code", "the server does not speak gRPC"},
	{"unexpected content-type", "the server does not speak gRPC"},
	{"authentication handshake failed", "the connection cannot be protected"},
}

// mostSaid is how many bytes of what a server says are told: it may be 700 KB, in each line of a log.
const mostSaid = 500

// explain says in plain English what a status means, and then what it says itself.
func explain(st *status.Status, method string, most int, answered bool) string {
	says := shorten.Tail(st.Message(), mostSaid)
	for _, p := range phrases {
		if strings.Contains(st.Message(), p.has) {
			means := p.means
			if answered {
				means = strings.TrimSuffix(means, unlike)
			}
			return means + ": " + says
		}
	}
	switch st.Code() {
	case codes.ResourceExhausted:
		var size, limit int
		if at := strings.Index(says, "received message larger than max ("); at >= 0 {
			_, _ = fmt.Sscanf(says[at:], "received message larger than max (%d vs. %d)", &size, &limit)
		}
		switch {
		case limit == most:
			return fmt.Sprintf("a response of %d bytes, which is more than the limit of %d (MaxMessage)", size, most)
		case limit > 0:
			return fmt.Sprintf("the server takes no request of %d bytes: its limit is %d", size, limit)
		}
	case codes.Unimplemented:
		return "the server has no " + method + ": " + says
	case codes.Unauthenticated, codes.PermissionDenied:
		return "the server does not let this client in: " + says
	}
	if says == "" {
		return "the server does not say why"
	}
	return says
}
