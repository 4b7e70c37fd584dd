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

// A cause says why a server gives nothing, and what to do about it.
type cause struct {
	text, hint string
	code       int
}

// ended is the error of a stream that has ended before anything came.
func (s *Server) ended(e fetch.End) error {
	c := s.why(e.Err)
	of := ""
	if e.Type != nil {
		of = " for " + e.Type.String()
	}
	return cli.FailWith(c.code, fmt.Errorf("%s%s: %s", s.Text, of, c.text), c.hint)
}

// lacking is the error of streams that have ended before anything came, while others gave
// something.
func (s *Server) lacking(ends []fetch.End) error {
	var all []string
	for _, e := range ends {
		of := "some types"
		if e.Type != nil {
			of = e.Type.String()
		}
		all = append(all, of+": "+s.why(e.Err).text)
	}
	return cli.FailWith(cli.NotFound, fmt.Errorf("%s gives others, and no %s", s.Text, someOf(all)), "")
}

// A symptom is how a mistake in how a server is asked shows: in the text of an error, since
// nothing else tells.
type symptom struct {
	texts      []string // one of them
	noHTTP1    bool     // or what answers does not speak HTTP/1.1
	tls        string   // "yes", "no": whether the connection was encrypted; "": either
	rest       bool     // only of polls over REST
	says, hint string   // says replaces the text; "": it stays
}

var symptoms = []symptom{
	{noHTTP1: true, rest: true,
		says: "what answers there does not speak REST", hint: "is it the port of gRPC? leave out --rest, or give that of the server's REST, such as --rest-listen"},
	{texts: []string{": 404 Not Found: "}, rest: true,
		hint: "is it the port of the server's REST, such as --rest-listen, and not that of an admin interface?"},
	{texts: []string{"looked like an HTTP/1.1 header", "unexpected HTTP status code received from server"}, noHTTP1: true,
		says: "what answers there does not speak gRPC", hint: "is it the port of an admin interface, or of REST? with --rest fetch polls over REST"},
	{texts: []string{"first record does not look like a TLS handshake", "server gave HTTP response to HTTPS client"}, tls: "yes",
		says: "the server speaks no TLS", hint: "leave out the --tls flags"},
	{texts: []string{"error reading server preface: EOF", "error reading server preface: read", "connection reset by peer", "connection closed before server preface received", "Client sent an HTTP request to an HTTPS server"}, tls: "no",
		says: "the server has closed the connection without a word", hint: "it may want TLS: --tls-ca FILE, or --tls"},
	{texts: []string{"certificate signed by unknown authority", "certificate is not trusted", "x509: certificate is not standards compliant"}, tls: "yes",
		hint: "--tls-ca FILE names the CA of the server's certificate"},
	{texts: []string{"certificate is valid for", "cannot validate certificate for", "doesn't contain any IP SANs", "not valid for any names"}, tls: "yes",
		hint: "--tls-server-name NAME says which name the server's certificate has"},
	{texts: []string{"certificate required", "bad certificate", "tls: unknown certificate authority", "tls: handshake failure"}, tls: "yes",
		hint: "the server wants a client certificate that it trusts: --tls-cert, --tls-key"},
	{texts: []string{"connection refused", "no such file or directory"}, says: "no server listens there", hint: "is the server running, and is that its address?"},
	{texts: []string{"no such host", "produced zero addresses", "server misbehaving"}, says: "there is no such host", hint: "is its name right?"},
}

// why says why a stream has ended.
func (s *Server) why(err error) cause {
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
	if conf, err := s.tls(); err != nil || conf != nil {
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
		c.hint = "the server lets this client have nothing: is --node right, and does it want --tls-cert, --tls-key?"
		if !s.NodeFlags.Given() {
			c.hint = "the node that asks is named after this machine, for want of --node: which nodes does the server let in, and does it want --tls-cert, --tls-key?"
		}
	case codes.ResourceExhausted:
		c.hint = "the server, or this client, has a limit that was exceeded"
	case codes.Unavailable, codes.DeadlineExceeded:
	default:
		c.code = cli.Failed
	}
	return c
}

// unimplemented says what else a server may have.
func (s *Server) unimplemented() string {
	switch {
	case s.Delta:
		return "the server may have no delta: try without --delta"
	case s.perType:
		return "the server may have no stream of this type: try without --per-type"
	case s.rest:
		return "the server may have no REST"
	}
	return "the server may have no ADS, or delta alone: try --per-type, or --delta; or is it the port of an admin API?"
}

func containsOne(text string, of []string) bool {
	for _, t := range of {
		if strings.Contains(text, t) {
			return true
		}
	}
	return false
}
