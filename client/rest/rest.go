// Package rest is a transport of package client that polls a management server over HTTP: "Synchronous
// (long) polling via REST endpoints is also available for the xDS singleton APIs." Requests and
// responses are proto3 JSON. The package links none of Envoy's messages: it decodes resources by their
// descriptors, which the program links or passes in [Options].
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

// A Resolver finds the types of messages in resources.
type Resolver interface {
	protoregistry.ExtensionTypeResolver
	protoregistry.MessageTypeResolver
}

// Options are the options of [New]. The zero value is ready to use.
type Options struct {
	// Client sends the requests, with its TLS settings, proxies and tokens. It must not have a timeout
	// shorter than Timeout. Nil: a client with the defaults of package http. Redirects are not
	// followed, whatever Client.CheckRedirect is: another server would get the node and names, and
	// could send configuration.
	Client *http.Client

	// Refresh is the time between a response and the next poll. Up to a tenth more is added at random,
	// so that clients that started together do not poll together. A poll for changed names does not
	// wait. Zero: 5 s.
	Refresh time.Duration

	// Timeout is how long a poll waits for its response. The server gets it in the header
	// x-envoy-expected-rq-timeout-ms, and may hold the poll until resources change. Zero: 30 s.
	Timeout time.Duration

	// MaxMessage is the maximum size of a response in bytes. Zero: 256 MiB.
	MaxMessage int

	// Limit is the same option as in [client.GRPCOptions].
	Limit xds.MemoryLimit

	// Resolver finds message types. Nil: [protoregistry.GlobalTypes], the types linked into the
	// program.
	Resolver Resolver

	// ResourceName is the same option as in [client.GRPCOptions].
	ResourceName func(t *xds.Type, body []byte) string
}

// New returns a transport that polls a server. base is its URL, such as "http://127.0.0.1:18000". The
// path of the type is added to it, such as "/v3/discovery:clusters". New does not connect: the first
// stream does. Each stream is for one type, which must have a path ([xds.Type.REST]).
//
// A stream polls during Recv with the request of the last Send. A request with other names ends the
// poll that is held. Recv does not return for unchanged resources. Each error ends the stream. An HTTP
// error of the server is a [*StatusError].
func New(base string, o Options) (client.Transport, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server's URL: %w", errors.Unwrap(err)) // without the URL, which may contain a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("the server's URL must be like http://host:port, not %q", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the server's URL %q must not have a query or a fragment, because the paths of the types are added to it", u.Redacted())
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
	base    string // the URL, with a password if it has one
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
		return nil, fmt.Errorf("%s: %s has no REST path", t.uri, only)
	case t.ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", t.uri, errClosed)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(errClosed) })
	context.AfterFunc(ctx, func() { stop() })
	return &stream{transport: t, only: only, ctx: ctx, end: cancel, wake: make(chan struct{}, 1)}, nil
}
