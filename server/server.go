// Package server serves the xDS transport protocol over gRPC: the aggregated
// service and one per row of the table of types. It decides nothing about
// resources and little about the protocol. What a node may see comes from a
// [Source], what is said about it from a [protocol.Session], how it looks on
// the wire from package wire; the server moves messages between them, one
// goroutine owning each stream.
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
	"github.com/chancery-xds/chancery/xds"
)

// A Source tells streams what they may see. *store.Store is one.
type Source[W Watch] interface {
	// Watch is called with the node of a stream's first request, nil if it has
	// none. The server closes the watch when the stream ends.
	//
	// An error says that the node may see nothing, and ends the stream: with its status if it has
	// one of gRPC, and with PERMISSION_DENIED otherwise. The context is that of the stream or call,
	// and knows the connection ([peer.FromContext], also over REST).
	Watch(ctx context.Context, node *xds.Node) (W, error)
}

// A Watch is one stream's view of a source. The stream's goroutine is the only
// one to use it.
type Watch interface {
	// C rings when Next is worth calling: a channel with one slot.
	C() <-chan struct{}

	// Next returns the newest view, and which names may differ from the view
	// before it: nil if any may, an empty list if none does.
	//
	// As long as the view is nil it is not known what the node may see: the stream
	// waits, and its client keeps what it has. C rings when there is a view. If it is nil later, as
	// of a node that comes to see what nobody knows yet, the stream ends with UNAVAILABLE: its client
	// keeps what it has, comes back, and waits.
	//
	// An error says that the node may see nothing any more, and ends the stream as one of Watch does.
	Next() (xds.View, []xds.Names, error)

	// Interested says how the subscription to a type has moved: what C rings
	// for. It rings at once if the names added were touched since Next.
	Interested(t *xds.Type, wildcard bool, added, removed []string)

	Close()
}

// A Recalling watch remembers what its types had lately. A client that comes back
// is then known to have it ([protocol.Options]).
type Recalling interface {
	Watch

	// Recent returns tables that the type had before the newest, the newest
	// first.
	Recent(t *xds.Type) []*xds.Table
}

// An Identified watch knows what the connection of its stream proves about the client, for
// observers. It does not change.
type Identified interface {
	Watch

	// Identity is what the connection proves; nil: nothing.
	Identity() fmt.Stringer
}

// A Holding watch may keep back what a client has refused: its view has something else in that place,
// so that the rest goes on. What the client accepts then is not what it refused.
type Holding interface {
	Watch

	// Holds reports whether the newest view keeps back anything of a type.
	Holds(t *xds.Type) bool
}

// A Server answers xDS clients out of a source. It is safe for concurrent use.
// Make it by [New], and to serve, register it with a grpc.Server that has [GRPCOptions]. The zero
// value, and nil, serve nobody: [Server.Register], [Server.Poll] and [Server.Drain] return an error, and
// other methods must not be called. Contexts must not be nil, save that of Drain.
type Server struct {
	options
	watch   func(context.Context, *xds.Node) (Watch, error)
	first   *admission // to first answers
	health  *health.Server
	refused refusals
	texts   texts // of those
	told    *told
	repeats dedup.Counter
	crowds  crowds
	clients clients
	drain   drain
	timers  timers
	seats   *seats // of streams
	silent  *silences
	polls   *polls
	others  *seats   // of streams of other services
	held    holdings // of streams

	unfinished *inbound.Budget
	rates      *rate.Owners // addresses

	streams     atomic.Uint64 // ever opened; numbers them
	nodeChanges atomic.Uint64
	tally       tally
	panics      uint64 // caught before

	mu    sync.Mutex
	large map[string]bool // type URLs of which a too large response was told

	misused atomic.Bool // that was told
}

// New returns a server of what src holds. A nil source, such as a nil *store.Store, is an error of
// [Server.Register] and of each poll.
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
		s.watch = func(ctx context.Context, n *xds.Node) (Watch, error) {
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
	s.seats.many = manyOfNode
	s.silent = newSilences(newSeats(s.bounds.Silent, reject(tooSilent, codes.ResourceExhausted,
		"limit exceeded: %d streams are open on which no request has come, besides the first of each connection: the maximum of this server", s.bounds.Silent), errLostSilent))
	s.others = newSeats(s.bounds.Others, reject(tooOther, codes.ResourceExhausted,
		"limit exceeded: %d streams of other services are open, the maximum of this server", s.bounds.Others), errLostOther)
	s.polls = newPolls(s.bounds.Polls, s.bounds.HeldInAll)
	s.polls.held.many = manyPollsOfNode
	s.held.loads.Max = s.bounds.HeldInAll
	s.told = newTold(toldPerStream * s.bounds.Streams)
	s.first = newAdmission(s.bounds.FirstAnswers)
	s.rates = rate.NewOwners(maxOwners, s.bounds.AddressRate)
	s.unfinished = inbound.NewBudget(inbound.Bounds{
		Bytes: s.bounds.Unfinished, Stall: s.readTimeout, Streams: s.bounds.StreamRate, Pace: s.rate,
		Refused: s.cut, Hasty: s.hasty, Panicked: s.broken,
	})
	s.SetServing(true)
	return s
}

// Register adds the aggregated discovery service, the service of each type that
// has one, and the health service to a gRPC server, which must have been made
// with [GRPCOptions]. A health service that it has already is left alone.
//
// It returns an error if nobody can be served so: of a grpc.Server without these options, of a
// nil source or grpc.Server. Who ignores it learns the same from the log and from each call. Of a
// registrar that is no *grpc.Server the first call tells whether it has the options.
//
// A grpc.Server that has one of these services already is an error, too, and stays as it is.
// Register must be called before grpc.Server.Serve, or gRPC ends the program.
func (s *Server) Register(g grpc.ServiceRegistrar) error {
	if s == nil || s.health == nil {
		return errNotMade
	}
	if isNil(g) {
		return errNoRegistrar
	}
	if err := s.taken(g); err != nil {
		return err
	}
	err := s.check()
	if err == nil && lacksOptions(g) {
		err = errNoOptions
	}
	s.register(g, err)
	return err
}

// register adds the services; if there is something wrong, that is all that they say.
func (s *Server) register(g grpc.ServiceRegistrar, wrong error) {
	for _, d := range s.services() {
		if wrong != nil {
			d = s.refusing(d, wrong)
		}
		g.RegisterService(d, s)
	}
	if has(g, healthgrpc.Health_ServiceDesc.ServiceName) {
		return
	}
	healthgrpc.RegisterHealthServer(s.Bound(g), s.health)
}

// Health returns the health service. The server ("") and each discovery service
// are SERVING until [Server.Drain], but for [Server.SetServing].
func (s *Server) Health() *health.Server { return s.health }

// SetServing sets what the health service says of the server and each discovery
// service, SERVING or NOT_SERVING: they are served all the same. It is for who knows
// that the configuration is empty, or that the server is about to be drained. After
// [Server.Drain] it does nothing.
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

// Stats counts what happened since the server was made.
type Stats struct {
	Open        int    // streams open now, also before their first request
	Silent      int    // of these, those on which no request has come; and unary calls without one
	Polls       int    // polls held now
	Others      int    // streams of other services open now ([Server.Bound])
	Waiting     int    // of the streams, for their turn to be answered first
	Held        int    // bytes of names that streams and polls hold, 64 added for each, and of their nodes
	Unfinished  int    // bytes of requests that are not whole, or wait to be handled
	Streams     uint64 // streams opened
	NodeChanges uint64 // streams whose client changed its node id, which is ignored
	Blocked     uint64 // streams ended because their client did not read
	Malformed   uint64 // streams ended because their client sent what is no request
	Denied      uint64 // streams and polls ended because their node may see nothing: an error of a [Source]

	// Panics counts those that were caught, each of which ended one connection,
	// stream, poll or search for a resource: of all that this process has of ours.
	Panics uint64

	// Throttled counts what ran into a limit: streams refused for there are too
	// many ("streams", "silent_streams", "other_streams"), polls refused or answered before their
	// time for the same reason ("polls"), streams ended since no request came
	// ("first_request"), on a connection that was closed because of requests that are not
	// whole ("unfinished"), ended by a request that is too large ("request") or
	// subscribes to too much ("subscription"), slowed down because of too many
	// requests ("rate"), or of those of their address ("address_rate", a stream once), or
	// because streams of their connection come and go too fast ("stream_rate", once for a
	// connection), ended because the client did not read ("write"), and first answers that
	// had to wait ("first_answers").
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
		Held:        s.held.bytes() + s.polls.cellar.taken(),
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
