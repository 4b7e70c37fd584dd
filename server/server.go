// Package server serves the xDS protocol over gRPC, from a store or another source: the aggregated service (ADS) and the
// service of each resource type.
//
// # To serve a store
//
// Make a [Server] with [New], add it to a grpc.Server that has [GRPCOptions] and [Server.Credentials] with
// [Server.Register], and end it with [Server.Drain]:
//
//	s := server.New(st, server.WithObserver(m))
//	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)), grpc.InTapHandle(s.Tap))...)
//	err := s.Register(g)
//
// Most programs need no more than these options: [WithLogger], [WithObserver], [WithLimits], [WithIdentifier], [WithAge],
// the timeouts [WithWriteTimeout], [WithReadTimeout], [WithFirstRequestTimeout] and [WithDrainTime], and
// [WithRemovalGrace], [WithForcedTTL], [WithResourceErrors] and [WithV2] for the protocol.
//
// # For programs like the chancery command
//
// These exist for programs with several servers, files, or other transports, and can be ignored otherwise:
//
//   - several servers with one content: [WithCatchUp], [WithRefusals], [Refusals], [Stream.Leave]
//   - resources from files: [WithPlaces], [WithRedactor]
//   - a source other than package store: [Source], [Watch], and what a Watch may also implement: [HistoryWatch],
//     [IdentityWatch], [WithholdingWatch]
//   - a transport other than gRPC, such as package rest: [Server.Poll], [Poll], [Caller], [HoldTime], [Server.Body]
//   - other services on the same grpc.Server: [Server.Limited]
//   - pages about streams: [Stream.Inspect], [CodesOnly]
//
// # How it works
//
// The server does not decide about resources, and little about the protocol. A [Source] decides what a node may see, a
// [protocol.Session] decides what to send, and package wire encodes it. The server moves messages between them. One
// goroutine owns each stream. The per-type streams of one client take turns, because their sessions depend on
// each other.
package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/chancery-xds/chancery/internal/limit/inbound"
	"github.com/chancery-xds/chancery/internal/limit/rate"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A Source decides which resources a stream may see. *store.Store is a Source.
type Source[W Watch] interface {
	// Watch is called with the node of the first request of a stream, which is nil if the client sent none. The
	// server closes the watch when the stream ends.
	//
	// An error means that the node may see nothing. The error ends the stream: with its own gRPC
	// status if it has one, and otherwise with PERMISSION_DENIED. The argument ctx is the context
	// of the stream or call. It has the properties of the connection ([peer.FromContext], also over
	// REST).
	Watch(ctx context.Context, node *xds.Node) (W, error)
}

// A Watch follows the content of a source for one stream. Only the goroutine of the stream uses it.
type Watch interface {
	// C returns a channel with one slot. It signals that Next should be called.
	C() <-chan struct{}

	// Next returns the newest view, and the names that may differ from the view before: nil if any
	// name may differ, and an empty list if no name differs.
	//
	// A nil view means that the content for the node is not known: the stream waits, and its client
	// keeps its resources. C signals when the view is known. If the view becomes nil later, the
	// stream ends with UNAVAILABLE. Then the client keeps its resources, reconnects and waits.
	//
	// An error means that the node may see nothing any more. The error ends the stream like an
	// error of Source.Watch.
	Next() (xds.View, []xds.Names, error)

	// Interested changes the names for which C signals: the subscription to a type. If an added name has changed
	// since Next, C signals at once.
	Interested(t *xds.Type, wildcard bool, added, removed []string)

	Close()
}

// A HistoryWatch is a [Watch] that remembers earlier tables of a type. So the server recognizes the
// versions that reconnecting clients state ([protocol.Options]).
type HistoryWatch interface {
	Watch

	// Recent returns the tables that the type had before the newest one, newest first.
	Recent(t *xds.Type) []*xds.Table
}

// An IdentityWatch is a [Watch] that knows the identity that the connection proves, for observers. The identity does not
// change.
type IdentityWatch interface {
	Watch

	// Identity returns the identity, or nil if the connection proves none.
	Identity() fmt.Stringer
}

// A WithholdingWatch is a [Watch] that may withhold a resource that a client has refused: its view
// has an older resource instead. So the refusal continues when the client accepts such a view.
type WithholdingWatch interface {
	Watch

	// Withholds reports whether the newest view withholds a resource of a type.
	Withholds(t *xds.Type) bool
}

// A TryingWatch is a [WithholdingWatch] whose view shows a withheld resource again from time to time, because
// the reason of the refusal may have passed (HEAL-2). The watch asks [Stream.MayRetry] before.
type TryingWatch interface {
	WithholdingWatch

	// Tried returns the name of the withheld resource of a type that the newest view shows again.
	Tried(t *xds.Type) (name string, ok bool)

	// Hasten is called when the client has accepted a message, see [protocol.Options]. It must not block.
	Hasten(helps protocol.Helps)
}

// A Server answers xDS clients from a source. A Server is safe for concurrent use. Make it with
// [New], and register it with a grpc.Server that has [GRPCOptions]. For a nil Server and the zero
// value, [Server.Register], [Server.Poll] and [Server.Drain] return an error, and other methods
// must not be called. Contexts must not be nil, except the context of Drain.
type Server struct {
	options
	watchNode  func(context.Context, *xds.Node) (Watch, error)
	first      *admission // of first answers
	health     *health.Server
	refused    refusals
	texts      textBudget // time to make NACK texts safe
	history    *sentHistory
	repeats    dedup.Counter
	addressLog addressLog
	clients    clients
	units      units
	drain      drain
	timers     timers
	seats      *seats // of streams
	silent     *silentStreams
	polls      *polls
	others     *seats    // of streams of other services
	held       heldBytes // of streams

	unfinished *inbound.Budget
	rates      *rate.Owners // addresses

	streams     atomic.Uint64 // the number of streams so far; the last one is an id
	nodeChanges atomic.Uint64
	tally       tally
	panics      uint64 // caught before New

	mu    sync.Mutex
	large map[string]bool // type URLs for which the warning about large responses was logged

	misused atomic.Bool // the error of cannotServe was logged
}

// New returns a server for the content of src. If src is nil, such as a nil *store.Store, [Server.Register] and each poll
// return an error.
func New[W Watch](src Source[W], opts ...Option) *Server {
	s := &Server{
		options: defaults(),
		health:  health.NewServer(),
		refused: newRefusals(maxRefusals),
		drain:   newDrain(),
		large:   map[string]bool{},
		panics:  panics.Count(),
	}
	if !isNil(src) {
		s.watchNode = func(ctx context.Context, n *xds.Node) (Watch, error) {
			w, err := src.Watch(ctx, n)
			if err != nil {
				return nil, deny(err)
			}
			return w, nil
		}
	}
	for _, o := range opts {
		if o != nil {
			o(&s.options)
		}
	}
	s.seats = newSeats(s.bounds.Streams, reject(tooManyStreams, codes.ResourceExhausted,
		"limit exceeded: %d streams are open, the maximum of this server", s.bounds.Streams), errLost)
	s.seats.many, s.seats.byConn = manyOfNode, true
	s.silent = newSilentStreams(newSeats(s.bounds.Silent, reject(tooSilent, codes.ResourceExhausted,
		"limit exceeded: %d streams are open on which no request has come, besides the first of each connection: the maximum of this server", s.bounds.Silent), errLostSilent))
	s.silent.byConn = true
	s.others = newSeats(s.bounds.Others, reject(tooManyOthers, codes.ResourceExhausted,
		"limit exceeded: %d streams of other services are open, the maximum of this server", s.bounds.Others), errLostOther)
	s.polls = newPolls(s.bounds.Polls, s.bounds.HeldInAll)
	s.polls.held.many = manyPollsOfNode
	s.held.loads.Max = s.bounds.HeldInAll
	s.history = newSentHistory(historyPerStream * s.bounds.Streams)
	s.first = newAdmission(s.bounds.FirstAnswers)
	s.rates = rate.NewOwners(maxOwners, s.bounds.AddressRate)
	s.unfinished = inbound.NewBudget(inbound.Bounds{
		Bytes: s.bounds.Unfinished, Stall: s.readTimeout, Streams: s.bounds.StreamRate, Pace: s.rate,
		Refused: s.logClosedConnection, Hasty: s.logStreamRate, Panicked: s.logBrokenConnection,
	})
	s.SetServing(true)
	return s
}

// Register adds the aggregated discovery service, the services of single types and the health
// service to a gRPC server. The gRPC server must have been made with [GRPCOptions]. If the gRPC
// server already has a health service, it keeps that service. Call Register before
// grpc.Server.Serve; otherwise gRPC ends the program.
//
// Register returns an error if the grpc.Server was made without these options, or if the
// grpc.Server or the source is nil. A program that ignores the error finds it in the log and in
// each call. For a registrar that is not a *grpc.Server, the missing options are detected at the
// first call.
//
// Register also returns an error if the grpc.Server already has one of these services. Then it
// changes nothing.
func (s *Server) Register(g grpc.ServiceRegistrar) error {
	if s == nil || s.health == nil {
		return errNotMade
	}
	if isNil(g) {
		return errNoRegistrar
	}
	if err := s.conflictingService(g); err != nil {
		return err
	}
	err := s.check()
	if err == nil && lacksOptions(g) {
		err = errNoOptions
	}
	s.register(g, err)
	return err
}

// register adds the services. If wrong is not nil, their calls return that error.
func (s *Server) register(g grpc.ServiceRegistrar, wrong error) {
	for _, d := range s.services() {
		if wrong != nil {
			d = s.refusingService(d, wrong)
		}
		g.RegisterService(d, s)
	}
	if hasService(g, healthgrpc.Health_ServiceDesc.ServiceName) {
		return
	}
	healthgrpc.RegisterHealthServer(s.Limited(g), s.health)
}

// Health returns the health service. The status of the server ("") and of each discovery service is SERVING until
// [Server.Drain], unless [Server.SetServing] changes it.
func (s *Server) Health() *health.Server { return s.health }

// SetServing sets the health status of the server and of each discovery service to SERVING or
// NOT_SERVING. The services do not stop. Use SetServing when the configuration is empty, or before
// a drain. After [Server.Drain], SetServing does nothing.
func (s *Server) SetServing(serving bool) {
	status := healthgrpc.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthgrpc.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	for _, d := range s.services() {
		s.health.SetServingStatus(d.ServiceName, status)
	}
}

// Stats are the counters of a server since it was made.
type Stats struct {
	Open        int    // open streams, including those without a request
	Silent      int    // open streams and unary calls without a request
	Polls       int    // held polls
	Others      int    // open streams of other services ([Server.Limited])
	Waiting     int    // streams that wait for their first answers
	Held        int    // bytes of the names (plus 64 for each) and nodes of streams and held polls
	Unfinished  int    // bytes of requests that are not complete, or wait to be handled
	Streams     uint64 // streams opened
	NodeChanges uint64 // streams whose client changed its node id, which is ignored
	Blocked     uint64 // streams ended because their client did not read
	Malformed   uint64 // streams ended because of a malformed request
	Denied      uint64 // streams and polls ended because their node may see nothing: an error of a [Source]

	// Panics counts caught panics in this process. Each panic has ended one connection, stream,
	// poll or search for a resource.
	Panics uint64

	// Throttled counts by limit how often clients reached it:
	//
	//   - refused streams: "streams", "silent_streams", "other_streams"
	//   - polls that were refused or answered early: "polls"
	//   - ended streams: "first_request" (no request came), "request" (too large), "subscription" (too many
	//     names), "write" (the client did not read), "unanswered" (it read, and sent no ACK or NACK)
	//   - closed connections: "unfinished" (incomplete requests)
	//   - waits: "rate" (requests of a stream), "address_rate" (requests of an address, once for each stream),
	//     "stream_rate" (new streams of a connection, once for each connection), "first_answers"
	Throttled map[string]uint64
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{
		Open:        s.seats.taken(),
		Silent:      s.silent.taken(),
		Polls:       s.polls.held.taken(),
		Others:      s.others.taken(),
		Waiting:     s.first.waiting(),
		Held:        s.held.total() + s.polls.memory.taken(),
		Unfinished:  s.unfinished.Used(),
		Streams:     s.streams.Load(),
		NodeChanges: s.nodeChanges.Load(),
		Blocked:     s.tally[tooSlow].Load(),
		Malformed:   s.tally[malformed].Load(),
		Denied:      s.tally[denied].Load(),
		Panics:      panics.Count() - s.panics,
		Throttled:   s.tally.throttled(),
	}
}
