// Package rest serves the xDS transport protocol as REST-JSON: "Synchronous
// (long) polling via REST endpoints is also available for the xDS singleton
// APIs."
//
// It decides nothing about polls: when they are answered, and with what, is the
// business of [server.Poll]. It links none of Envoy's messages. Requests are
// read as JSON; resources are written as JSON by their descriptors, which the
// program has to link or to bring ([WithResolver]).
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

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Handler answers POST requests to the paths of the table of types, such as
// /v3/discovery:clusters. The body is a DiscoveryRequest in proto3 JSON, with
// names in snake_case or camelCase; unknown fields are ignored. The answer is
//
//   - 200 and a DiscoveryResponse in proto3 JSON, when there is news for the
//     client; the poll is held for it, until a little before the client gives up
//     ([server.Hold]);
//   - 304, when there was none;
//   - 4xx or 503 and a google.rpc.Status in JSON, which says what is wrong with
//     the request, or that the client should come back later (Retry-After).
//
// Over HTTP/1.1 a poll that is held costs less than an idle connection: it takes
// its connection away from the [http.Server], as a hijacker does, and returns it
// with the answer. So middleware sees such requests end early, ConnState sees
// their connections as hijacked and new, ReadHeaderTimeout limits how long they
// may be idle then, and [http.Server.Shutdown] does not wait for them: call
// [server.Server.Drain] before, which does.
//
// It is safe for concurrent use.
type Handler struct {
	options
	server  *server.Server
	types   map[string]*xds.Type // by path
	answers answers
	bodies  sync.Pool // of *bytes.Buffer
}

// A Resolver finds the messages that resources are, and those inside them.
type Resolver interface {
	protoregistry.ExtensionTypeResolver
	protoregistry.MessageTypeResolver
}

type options struct {
	resolver Resolver
	maxBody  int64
	log      *slog.Logger
}

// An Option changes a handler from its defaults. A nil one changes nothing, and so does an option that is given nil.
type Option func(*options)

// WithResolver sets where the messages are found that resources are;
// protoregistry.GlobalTypes unless set, which has those that the program links.
// A resource that is not found there cannot be told: its polls get 500.
func WithResolver(r Resolver) Option {
	return func(o *options) {
		if r != nil {
			o.resolver = r
		}
	}
}

// WithMaxBody sets the size of the largest request in bytes; 4 MiB unless set.
// Envoy's have 77 KB and the names.
func WithMaxBody(n int64) Option { return func(o *options) { o.maxBody = n } }

// WithLogger sets where the handler logs what it cannot tell, and for those who
// debug what it refuses; slog.Default() unless set.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = cmp.Or(l, o.log) } }

// New returns a handler that answers polls out of a server. Of one that is nil, or has a nil source, all polls
// get 500 with the reason, which is logged at once.
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
		h.log.Error("no poll can be answered", "error", errNoServer)
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
	err := h.guarded(func() (err error) { p, hold, err = h.open(w, r); return err })
	if err != nil {
		h.log.Debug("poll was refused", "peer", r.RemoteAddr, "path", r.URL.Path, "error", err)
		fail(w, err)
		return
	}
	if !p.Due() && hold > 0 {
		if c := park(w, r); c != nil {
			go h.hold(c, p, hold) //nolint:gosec // the request's context ends with this method, and is what is to be freed
			return
		}
	}
	h.finish(r.Context(), w, p, hold)
}

// hold finishes a poll on a connection of its own.
func (h *Handler) hold(c *parked, p *server.Poll, hold time.Duration) {
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	go func() {
		defer close(c.ended)
		if h.guarded(func() error { c.watch(gone); return nil }) != nil {
			gone()
		}
	}()
	h.finish(ctx, c, p, hold)
	if h.guarded(func() error { c.unpark(); return nil }) != nil {
		c.conn.Close()
	}
}

// finish answers a poll when it is due or has been held long enough.
func (h *Handler) finish(ctx context.Context, w http.ResponseWriter, p *server.Poll, hold time.Duration) {
	err := h.guarded(func() error { return h.answer(ctx, w, p, hold) })
	if errors.Is(err, errInternal) {
		if c, ok := w.(*parked); !ok || c.out == nil { // it has said nothing yet
			_ = h.guarded(func() error { fail(w, err); return flush(w) })
		} else {
			c.keep = false
		}
	}
	p.Close(err)
}

// errNoServer is what polls get of a handler without a server.
var errNoServer error = failure{http.StatusInternalServerError, codes.FailedPrecondition, "rest.New was given a nil server"}

// errInternal is what is told of a panic. What it was is for the log.
var errInternal error = failure{http.StatusInternalServerError, codes.Internal, "internal error"}

// guarded calls f for a poll, which a panic in it ends, and nothing else.
func (h *Handler) guarded(f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		p.Log(h.log, "poll")
		return errInternal
	}
	return err
}

func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, p *server.Poll, hold time.Duration) error {
	r, err := p.Wait(ctx, hold)
	switch {
	case ctx.Err() != nil && err != nil: // the client is gone
	case err != nil && status.Code(err) != codes.Unavailable:
		fail(w, err)
	case r == nil:
		if err != nil { // the server ends, or another one may have something newer: so does the connection
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

// connection returns what a selector may know of a request ([server.Source]), in the words of
// gRPC, and keeps nothing else of it: its connection, with what ConnContext of the [http.Server]
// has said of it ([peer.NewContext]), and the header Authorization as metadata.
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

// flush tells whether a response could be sent.
func flush(w http.ResponseWriter) error {
	if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil // later
}

// open reads a request and begins its poll.
func (h *Handler) open(w http.ResponseWriter, r *http.Request) (*server.Poll, time.Duration, error) {
	t := h.types[r.URL.Path]
	if t == nil {
		return nil, 0, h.noPath(r.URL.Path)
	}
	if r.Method != http.MethodPost {
		return nil, 0, failure{http.StatusMethodNotAllowed, codes.Unimplemented, fmt.Sprintf("%s needs POST, not %s", t.REST, r.Method)}
	}
	hold, err := server.Hold(r.Header.Values(server.ExpectedTimeout)...)
	if err != nil {
		return nil, 0, invalid(err)
	}
	if h.server == nil {
		return nil, 0, errNoServer
	}
	b := h.bodies.Get().(*bytes.Buffer)
	defer h.reuse(b)
	b.Reset()
	body := h.body(w, r)
	defer body.Close()
	if _, err := b.ReadFrom(body); err != nil {
		if status.Code(err) == codes.Unavailable {
			return nil, 0, err
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, 0, failure{http.StatusRequestEntityTooLarge, codes.ResourceExhausted, fmt.Sprintf("the request has more than %d bytes", h.maxBody)}
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
	p, err := h.server.Poll(connection(r), t, req, server.Caller{Addr: address(r.RemoteAddr), InTurn: r.ProtoMajor == 1})
	return p, hold, err
}

// body is the body of a request, which counts as long as it is held.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	c := http.NewResponseController(w)
	stop := func() { _ = c.SetReadDeadline(time.Unix(1, 0)) } // if it fails, the request ends by itself
	return h.server.Body(r.Context(), http.MaxBytesReader(w, r.Body, h.maxBody), address(r.RemoteAddr), stop)
}

// mostKept is how large a buffer may be that is kept for the next poll.
const mostKept = 256 << 10

func (h *Handler) reuse(b *bytes.Buffer) {
	if b.Cap() <= mostKept {
		h.bodies.Put(b)
	}
}

// noPath says that there is no such path, and which there are.
func (h *Handler) noPath(path string) error {
	var all []string
	for _, t := range xds.Types() {
		if t.REST != "" {
			all = append(all, t.REST)
		}
	}
	slices.Sort(all)
	return failure{http.StatusNotFound, codes.NotFound, fmt.Sprintf("nothing is served at %.200q; the paths are %s; REST has neither the aggregated service (ADS) nor delta (incremental) xDS", path, strings.Join(all, ", "))}
}

// peer is the address of a client; nil if it has none, as on unix sockets.
func address(remote string) net.Addr {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

// A failure is what a client is told of a request that is not served.
type failure struct {
	http int
	code codes.Code
	text string
}

func (f failure) Error() string { return f.text }

func invalid(err error) error {
	return failure{http.StatusBadRequest, codes.InvalidArgument, err.Error()}
}

// retryAfter is how many seconds a client should wait that cannot be served now.
const retryAfter = 5

// fail tells a client of a failure. Those of the server are statuses of gRPC.
func fail(w http.ResponseWriter, err error) {
	f, ok := errors.AsType[failure](err)
	if !ok {
		f = failure{http.StatusInternalServerError, status.Code(err), status.Convert(err).Message()}
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
		w.Header().Set("Connection", "close") // the next one has another certificate, perhaps
	}
	b := fmt.Appendf(nil, "{\"code\":%d,\"message\":%s}\n", f.code, quote(f.text))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(f.http)
	_, _ = w.Write(b)
}
