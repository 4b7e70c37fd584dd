package xdsclient

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/client"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	"github.com/chancery-xds/chancery/internal/text"
)

// A cause is the reason why a server sends no resources, with a hint.
type cause struct {
	text, hint string
	code       int
}

// endError returns the error for a stream that ended before the first response.
func (s *Server) endError(e fetch.End) error {
	c := s.explain(e.Err)
	of := ""
	if e.Type != nil {
		of = " for " + e.Type.String()
	}
	return cli.FailWith(c.code, fmt.Errorf("%s%s: %s", s.Text, of, c.text), c.hint)
}

// partialError returns the error if some streams ended before the first response and other streams got
// resources.
func (s *Server) partialError(ends []fetch.End) error {
	var all []string
	for _, e := range ends {
		of := "some types"
		if e.Type != nil {
			of = e.Type.String()
		}
		all = append(all, of+": "+s.explain(e.Err).text)
	}
	return cli.FailWith(cli.NotFound, fmt.Errorf("%s sends other types, but not %s", s.Text, someOf(all)), "")
}

// A symptom recognizes a wrong flag or address by the text of the resulting error. gRPC and net/http
// have no error codes for these causes.
type symptom struct {
	texts      []string // the error's text must contain one of these texts
	noHTTP1    bool     // or the peer does not speak HTTP/1.1
	tls        string   // "yes": only with TLS; "no": only without TLS; "": both
	rest       bool     // only for polls over REST
	says, hint string   // says replaces the error's text; "": keep the error's text
}

var symptoms = []symptom{
	{noHTTP1: true, rest: true,
		says: "the server there does not speak REST", hint: "is it a gRPC port? leave out --rest, or give the server's REST address, such as its --rest-listen"},
	{texts: []string{": 404 Not Found: "}, rest: true,
		hint: "is it the server's REST port, such as --rest-listen, and not the port of an admin interface?"},
	{texts: []string{"looked like an HTTP/1.1 header", "unexpected HTTP status code received from server"}, noHTTP1: true,
		says: "the server there does not speak gRPC", hint: "is it the port of an admin interface, or of REST? with --rest fetch polls over REST"},
	{texts: []string{"first record does not look like a TLS handshake", "server gave HTTP response to HTTPS client"}, tls: "yes",
		says: "the server does not speak TLS", hint: "leave out the --tls flags"},
	{texts: []string{"error reading server preface: EOF", "error reading server preface: read", "connection reset by peer", "connection closed before server preface received", "Client sent an HTTP request to an HTTPS server"}, tls: "no",
		says: "the server has closed the connection without an error", hint: "it may require TLS: --tls-ca FILE, or --tls"},
	{texts: []string{"certificate signed by unknown authority", "certificate is not trusted", "x509: certificate is not standards compliant"}, tls: "yes",
		hint: "--tls-ca FILE names the CA of the server's certificate"},
	{texts: []string{"certificate is valid for", "cannot validate certificate for", "doesn't contain any IP SANs", "not valid for any names"}, tls: "yes",
		hint: "--tls-server-name NAME is the name in the server's certificate"},
	{texts: []string{"certificate required", "bad certificate", "tls: unknown certificate authority", "tls: handshake failure"}, tls: "yes",
		hint: "the server requires a client certificate that it trusts: --tls-cert, --tls-key"},
	{texts: []string{"connection refused", "no such file or directory"}, says: "no server listens there", hint: "is the server running, and is the address right?"},
	{texts: []string{"no such host", "produced zero addresses", "server misbehaving"}, says: "the host does not exist", hint: "is the host name right?"},
}

// explain returns the cause of the end of a stream.
func (s *Server) explain(err error) cause {
	c := cause{text: text.Lines(err.Error()), code: cli.NoServer}
	if errors.Is(err, io.EOF) {
		c.text, c.hint, c.code = "the server has ended the stream", "it may not know the type, or the node", cli.Failed
		return c
	}
	st, is := errors.AsType[*client.StatusError](err)
	if is {
		c.text = text.Line(st.Code.String() + ": " + st.Cause)
	}
	on := "no"
	if conf, err := s.tls(nil); err != nil || conf != nil {
		on = "yes"
	}
	for _, y := range symptoms {
		if (y.tls == "" || y.tls == on) && (s.rest || !y.rest) && (containsOne(err.Error(), y.texts) || y.noHTTP1 && adminclient.NoHTTP1(err)) {
			if y.says != "" {
				c.text = y.says
			}
			c.hint = y.hint
			return c
		}
	}
	if !is {
		return c
	}
	switch st.Code {
	case codes.Unimplemented:
		c.code, c.hint = cli.Failed, s.unimplemented()
	case codes.Unauthenticated, codes.PermissionDenied:
		c.hint = "the server denies access: is --node right, and does it require --tls-cert and --tls-key?"
		if !s.NodeFlags.Given() {
			c.hint = "without --node the node id is the name of this machine: which nodes does the server accept, and does it require --tls-cert and --tls-key?"
		}
	case codes.ResourceExhausted:
		c.hint = "the server, or this client, has a limit that was exceeded"
	case codes.Unavailable, codes.DeadlineExceeded:
	default:
		c.code = cli.Failed
	}
	return c
}

// unimplemented returns a hint with a variant of the protocol that the server may support.
func (s *Server) unimplemented() string {
	switch {
	case s.Delta:
		return "the server may not support delta: try without --delta"
	case s.perType:
		return "the server may not have a stream for this type: try without --per-type"
	case s.rest:
		return "the server may not support REST"
	}
	return "the server may not support ADS, or only delta: try --per-type, or --delta; or is it the port of an admin API?"
}

func containsOne(text string, of []string) bool {
	for _, t := range of {
		if strings.Contains(text, t) {
			return true
		}
	}
	return false
}
