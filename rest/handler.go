// Package rest serves xDS over REST with JSON: "Synchronous (long) polling via REST endpoints is also
// available for the xDS singleton APIs."
//
// [server.Poll] decides when a poll is answered and with which resources. This package links none of
// Envoy's messages: it encodes resources by their descriptors, which the program links or passes to
// [WithResolver].
package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Handler answers POST requests to the paths in the table of types, such as /v3/discovery:clusters.
// The body is a DiscoveryRequest in proto3 JSON, with names in snake_case or camelCase. Unknown fields
// are ignored. The response has the status
//
//   - 200 with a DiscoveryResponse in proto3 JSON, when resources have changed. Until then the poll is
//     held, up to a moment before the client's timeout ([server.HoldTime]);
//   - 304, when they have not changed;
//   - 4xx or 503 with a google.rpc.Status in JSON, when the request is invalid or cannot be served now
//     (Retry-After).
//
// A request of a web page has the Origin header and gets 403, because a page of any origin could otherwise
// read resources by DNS rebinding.
//
// Over HTTP/1.1 a held poll uses less memory than an idle connection: the handler hijacks the
// connection from the [http.Server] and gives it back with the response. This has some effects.
// Middleware sees the request end early. ConnState reports the connection as hijacked and later as
// new. ReadHeaderTimeout then limits how long the connection may be idle. [http.Server.Shutdown]
// does not wait for held polls, but [server.Server.Drain] does: call Drain first.
//
// A Handler is safe for concurrent use.
type Handler struct {
	options
	server    *server.Server
	types     map[string]*xds.Type // by path
	encodings encodings
	bodies    sync.Pool // of *bytes.Buffer
}

// A Resolver finds the types of messages in resources.
type Resolver interface {
	protoregistry.ExtensionTypeResolver
	protoregistry.MessageTypeResolver
}

type options struct {
	resolver Resolver
	maxBody  int64
	log      *slog.Logger
}

// An Option changes the default of a handler's setting. A nil Option, and an Option with a nil
// argument, changes nothing.
type Option func(*options)

// WithResolver sets the resolver for the messages of resources. The default is
// protoregistry.GlobalTypes, the types linked into the program. A poll for a resource with an unknown
// type gets 500.
func WithResolver(r Resolver) Option {
	return func(o *options) {
		if r != nil {
			o.resolver = r
		}
	}
}

// WithMaxBody sets the maximum size of a request in bytes. The default is 4 MiB. A request of Envoy has
// 77 KB plus the names.
func WithMaxBody(n int64) Option { return func(o *options) { o.maxBody = n } }

// WithLogger sets the logger for resources that cannot be encoded and, at debug level, for refused
// requests. The default is slog.Default().
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = cmp.Or(l, o.log) } }

// New returns a handler that answers polls with the resources of a server. If the server or its source
// is nil, New logs this, and all polls get 500 with the reason.
func New(s *server.Server, opts ...Option) *Handler {
	h := &Handler{
		options: options{resolver: protoregistry.GlobalTypes, maxBody: 4 << 20, log: slog.Default()},
		server:  s,
		types:   map[string]*xds.Type{},
		bodies:  sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
	for _, o := range opts {
		if o != nil {
			o(&h.options)
		}
	}
	if s == nil {
		h.log.Error("cannot answer polls", "error", errNoServer)
	}
	for _, t := range xds.Types() {
		if t.REST != "" {
			h.types[t.REST] = t
		}
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p *server.Poll
	var hold time.Duration
	err := h.recoverPanic(func() (err error) { p, hold, err = h.open(w, r); return err })
	if err != nil {
		h.log.Debug("refused a poll", "peer", r.RemoteAddr, "path", r.URL.Path, "error", err)
		fail(w, err)
		return
	}
	if !p.Ready() && hold > 0 {
		if c := holdConn(w, r); c != nil {
			go h.hold(c, p, hold) //nolint:gosec // the request's context ends when this method returns, and its memory should be freed then
			return
		}
	}
	h.finish(r.Context(), w, p, hold)
}

// hold finishes a poll on its own connection.
func (h *Handler) hold(c *heldConn, p *server.Poll, hold time.Duration) {
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	go func() {
		defer close(c.watchEnded)
		if h.recoverPanic(func() error { c.watch(gone); return nil }) != nil {
			gone()
		}
	}()
	h.finish(ctx, c, p, hold)
	if h.recoverPanic(func() error { c.giveBack(); return nil }) != nil {
		c.conn.Close()
	}
}

// finish answers a poll when it is due or has been held for its time.
func (h *Handler) finish(ctx context.Context, w http.ResponseWriter, p *server.Poll, hold time.Duration) {
	err := h.recoverPanic(func() error { return h.answer(ctx, w, p, hold) })
	if errors.Is(err, errInternal) {
		if c, ok := w.(*heldConn); !ok || c.out == nil { // nothing was sent yet
			_ = h.recoverPanic(func() error { fail(w, err); return flush(w) })
		} else {
			c.reuse = false
		}
	}
	p.Close(err)
}

// errNoServer is the response to polls of a handler without a server.
var errNoServer error = httpError{http.StatusInternalServerError, codes.FailedPrecondition, "rest.New was given a nil server"}

// errInternal is the response after a panic. Only the log has the cause.
var errInternal error = httpError{http.StatusInternalServerError, codes.Internal, "internal error"}

// recoverPanic calls f for a poll. A panic ends only this poll.
func (h *Handler) recoverPanic(f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		p.Log(h.log, "poll")
		return errInternal
	}
	return err
}

func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, p *server.Poll, hold time.Duration) error {
	r, err := p.Wait(ctx, hold)
	switch {
	case ctx.Err() != nil && err != nil: // the client has closed the connection
	case err != nil && status.Code(err) != codes.Unavailable:
		fail(w, err)
	case r == nil:
		if err != nil { // the server is draining, or another server may be newer: let the client connect again
			w.Header().Set("Connection", "close")
		}
		w.WriteHeader(http.StatusNotModified)
		err = flush(w)
	default:
		err = h.write(w, r)
		if e := flush(w); err == nil {
			err = e
		}
	}
	return err
}

// connection returns the context that a [server.Source] gets for a request, in the form of gRPC: the
// peer with its TLS state and what ConnContext of the [http.Server] set ([peer.NewContext]), and the
// header Authorization as metadata. It holds nothing else of the request.
func connection(r *http.Request) context.Context {
	p := &peer.Peer{Addr: address(r.RemoteAddr)}
	if known, ok := peer.FromContext(r.Context()); ok {
		p.AuthInfo = known.AuthInfo
	}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	ctx := peer.NewContext(context.Background(), p)
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{"authorization": slices.Clone(values)})
	}
	return ctx
}

// flush sends the response and returns whether this failed.
func flush(w http.ResponseWriter) error {
	if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil // net/http flushes after the handler
}

// open reads a request and opens its poll.
func (h *Handler) open(w http.ResponseWriter, r *http.Request) (*server.Poll, time.Duration, error) {
	if listen.CrossOrigin(r, "") { // SAFE-16; Host does not count: Envoy sends the name of a cluster
		return nil, 0, httpError{http.StatusForbidden, codes.PermissionDenied, "this server accepts no requests from web pages"}
	}
	t := h.types[r.URL.Path]
	if t == nil {
		return nil, 0, h.unknownPath(r.URL.Path)
	}
	if r.Method != http.MethodPost {
		return nil, 0, httpError{http.StatusMethodNotAllowed, codes.Unimplemented, fmt.Sprintf("%s needs POST, not %s", t.REST, r.Method)}
	}
	hold, err := server.HoldTime(r.Header.Values(server.ExpectedTimeout)...)
	if err != nil {
		return nil, 0, invalid(err)
	}
	if h.server == nil {
		return nil, 0, errNoServer
	}
	b := h.bodies.Get().(*bytes.Buffer)
	defer h.reuseBody(b)
	b.Reset()
	body := h.body(w, r)
	defer body.Close()
	if _, err := b.ReadFrom(body); err != nil {
		if status.Code(err) == codes.Unavailable {
			return nil, 0, err
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, 0, httpError{http.StatusRequestEntityTooLarge, codes.ResourceExhausted, fmt.Sprintf("the request has more than %d bytes", h.maxBody)}
		}
		return nil, 0, invalid(fmt.Errorf("read the request: %w", err))
	}
	req, err := decode(b.Bytes())
	if err != nil {
		return nil, 0, invalid(err)
	}
	if req.Type != nil && !req.Type.Is(t) {
		return nil, 0, invalid(fmt.Errorf("type_url: %s serves %s, not %.200q", t.REST, t.URL, req.Type.URL))
	}
	p, err := h.server.Poll(connection(r), t, req, server.Caller{Addr: address(r.RemoteAddr), Sequential: r.ProtoMajor == 1})
	return p, hold, err
}

// body returns the body of a request. The server counts its bytes while they are held.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	c := http.NewResponseController(w)
	stop := func() { _ = c.SetReadDeadline(time.Unix(1, 0)) } // if it fails, the request ends by itself
	return h.server.Body(r.Context(), http.MaxBytesReader(w, r.Body, h.maxBody), address(r.RemoteAddr), stop)
}

// maxReusedBody limits the size of a buffer that is kept for another poll.
const maxReusedBody = 256 << 10

func (h *Handler) reuseBody(b *bytes.Buffer) {
	if b.Cap() <= maxReusedBody {
		h.bodies.Put(b)
	}
}

// unknownPath returns an error with the known paths.
func (h *Handler) unknownPath(path string) error {
	var all []string
	for _, t := range xds.Types() {
		if t.REST != "" {
			all = append(all, t.REST)
		}
	}
	slices.Sort(all)
	return httpError{http.StatusNotFound, codes.NotFound, fmt.Sprintf("unknown path %.200q: the paths are %s; REST supports neither the aggregated service (ADS) nor delta xDS", path, strings.Join(all, ", "))}
}

// address returns the address of a client; nil if it has none, as on unix sockets.
func address(remote string) net.Addr {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

// An httpError is the response to a request that is not served.
type httpError struct {
	http int
	code codes.Code
	text string
}

func (f httpError) Error() string { return f.text }

func invalid(err error) error {
	return httpError{http.StatusBadRequest, codes.InvalidArgument, err.Error()}
}

// retryAfter is how long a client should wait when the server is busy, in seconds.
const retryAfter = 5

// fail sends an error as the response. An error of the server is a gRPC status.
func fail(w http.ResponseWriter, err error) {
	f, ok := errors.AsType[httpError](err)
	if !ok {
		f = httpError{http.StatusInternalServerError, status.Code(err), status.Convert(err).Message()}
		switch f.code {
		case codes.InvalidArgument:
			f.http = http.StatusBadRequest
		case codes.ResourceExhausted:
			f.http = http.StatusRequestEntityTooLarge
		case codes.Unavailable:
			f.http = http.StatusServiceUnavailable
		case codes.PermissionDenied:
			f.http = http.StatusForbidden
		case codes.Unauthenticated:
			f.http = http.StatusUnauthorized
		}
	}
	switch f.http {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Connection", "close") // the next connection may have another certificate
	}
	b := fmt.Appendf(nil, "{\"code\":%d,\"message\":%s}\n", f.code, quote(f.text))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(f.http)
	_, _ = w.Write(b)
}
