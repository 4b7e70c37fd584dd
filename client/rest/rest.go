// Package rest is a transport of package client that polls: "Synchronous (long) polling via REST
// endpoints is also available for the xDS singleton APIs." Requests and responses are in proto3
// JSON. It links none of Envoy's messages: resources are read by their descriptors, which the
// program has to link or to bring ([Options]).
package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// A Resolver finds the messages that resources are, and those inside them.
type Resolver interface {
	protoregistry.ExtensionTypeResolver
	protoregistry.MessageTypeResolver
}

// Options of a transport. The zero value is ready to use.
type Options struct {
	// Client sends the requests; TLS, proxies and tokens are its business. It must have no
	// timeout shorter than Timeout. Nil: one of its own with the defaults of package http.
	// Redirects are not followed, whatever its CheckRedirect: the node and the names would go to
	// another server, and what that says would be configuration.
	Client *http.Client

	// Refresh is how long the next poll waits after an answer, and up to a tenth more, so that
	// clients that began together do not poll together. What is asked for anew does not wait.
	// Zero: 5 s.
	Refresh time.Duration

	// Timeout is how long a server has to answer. It is told, so that one that can holds the
	// poll meanwhile until there is news (x-envoy-expected-rq-timeout-ms). Zero: 30 s.
	Timeout time.Duration

	// MaxMessage is the largest response in bytes. Zero: 256 MiB.
	MaxMessage int

	// Resolver finds messages. Nil: [protoregistry.GlobalTypes], those that are linked.
	Resolver Resolver

	// Name is as in [client.GRPCOptions].
	Name func(t *xds.Type, body []byte) string
}

// New returns a transport that polls a server. Base is its URL, "http://127.0.0.1:18000", to which
// the paths of the types are added: "/v3/discovery:clusters". Nobody is connected to until a stream
// is opened. Each stream is of one type, of those that have a path ([xds.Type.REST]).
//
// A stream polls while somebody is in Recv, with what was sent last; what is asked for anew ends
// the poll that is held. That there is nothing new is no response. Any error ends the stream.
// An answer that is an error of the server is a [*StatusError].
func New(base string, o Options) (client.Transport, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server's URL: %w", errors.Unwrap(err)) // without the URL, which may have a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("the server's URL must be like http://host:port, not %q", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the server's URL %q must end with a path: those of the types are added to it", u.Redacted())
	}
	t := &transport{options: o, base: strings.TrimSuffix(u.String(), "/")}
	u.User = nil
	t.uri = strings.TrimSuffix(u.String(), "/")
	t.options.Refresh = cmp.Or(o.Refresh, 5*time.Second)
	t.options.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	t.options.MaxMessage = cmp.Or(o.MaxMessage, 256<<20)
	if o.Resolver == nil {
		t.options.Resolver = protoregistry.GlobalTypes
	}
	if o.Client != nil {
		t.http = *o.Client
	} else {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.IdleConnTimeout = 2 * t.options.Refresh
		t.http.Transport = own
	}
	t.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.ctx, t.close = context.WithCancelCause(context.Background())
	return t, nil
}

type transport struct {
	options Options
	base    string // with what else the URL has
	uri     string
	http    http.Client
	ctx     context.Context // ends with Close
	close   context.CancelCauseFunc
}

var errClosed = errors.New("the transport is closed")

func (t *transport) Variant() xds.Variant { return xds.SotW }
func (t *transport) Aggregated() bool     { return false }
func (t *transport) String() string       { return t.uri }

func (t *transport) Close() error {
	t.close(errClosed)
	t.http.CloseIdleConnections()
	return nil
}

func (t *transport) Open(ctx context.Context, only *xds.Type) (client.Stream, error) {
	switch {
	case only == nil:
		return nil, fmt.Errorf("%s: a poll needs a type", t.uri)
	case only.REST == "":
		return nil, fmt.Errorf("%s: %s cannot be polled for", t.uri, only)
	case t.ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", t.uri, errClosed)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(errClosed) })
	context.AfterFunc(ctx, func() { stop() })
	return &stream{transport: t, only: only, ctx: ctx, end: cancel, wake: make(chan struct{}, 1)}, nil
}
