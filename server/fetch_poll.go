package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"iter"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// MaxHold is the longest time for which a poll is held.
const MaxHold = 30 * time.Second

// A Poll is a subscription with one answer: a request over REST or to a Fetch method. It is for transports other
// than gRPC streams, such as package rest. "When the poll period is set to a small value, with the intention
// of long polling, then there is also a requirement to avoid sending a DiscoveryResponse unless a change
// to the underlying resources has occurred via a resource update."
//
// The version of an answer is a hash of the requested names and their content. So a change of other
// names causes no answer, but a new requested name does. For "*" alone, the version is the version
// of the type, as on streams. The nonce equals the version. A client waits if it has the current
// version or has refused it.
//
// For an [Observer], a poll is a stream with one request. Only one goroutine at a time may use a Poll.
type Poll struct {
	server *Server
	info   Stream
	watch  Watch
	names  []string // requested names, sorted, including "*"
	all    bool     // "*" is the only name
	stated string   // the version that the client has; "": none
	poller poller
	caller Caller

	retried     lastAnswer    // the earlier answer to be repeated
	skipVersion string        // the version that the client must not get; "": any version may be sent
	standing    statedVersion // what the server knows about the stated version
	answer      *xds.Response // nil: not known yet
	seat        *seat         // nil: the poll is not held
	stored      *reservation  // the memory of the poll while it is held; nil: not held
	lost        notices       // signals the loss of seat or memory
}

// polls is the state of all polls of a server.
type polls struct {
	answers *lru[poller, lastAnswer]        // answers that are not acknowledged yet
	conns   *lru[netip.AddrPort, connPolls] // connections with polls
	held    *seats
	memory  *pollMemory
}

func newPolls(n, heldInAll int) *polls {
	full := reject(tooManyPolls, codes.Unavailable, "limit exceeded: %d polls are held, the maximum of this server; try again later", n)
	return &polls{held: newSeats(n, full, errLostPoll), memory: newPollMemory((heldInAll + pollsPart - 1) / pollsPart), answers: newLRU[poller, lastAnswer](n), conns: newLRU[netip.AddrPort, connPolls](n)}
}

// A Caller is the client of a poll, as far as its transport knows it.
type Caller struct {
	Addr net.Addr // nil: not known

	// Sequential means that a connection carries one poll after the other, as in HTTP/1.1. Then the
	// next poll on this connection proves that the client has received the last answer.
	Sequential bool
}

// Poll starts a poll of a type. The poll does not keep the memory of the request. An error has a
// gRPC status: UNAVAILABLE if the client should try again later, INVALID_ARGUMENT or
// RESOURCE_EXHAUSTED if the request is wrong. Without an error, call Close. The [Source] gets the
// context, and the poll keeps it until Close; the end of the context does not cancel the poll. The
// type must not be nil. The Caller may be the zero value.
func (s *Server) Poll(ctx context.Context, t *xds.Type, req xds.Request, from Caller) (*Poll, error) {
	if err := s.check(); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if t == nil || t.URL == "" {
		return nil, status.Error(codes.InvalidArgument, "the poll has no type_url")
	}
	if !s.drain.enter() {
		return nil, errDraining
	}
	node := req.Node
	if node == nil {
		node = &noNode
	}
	p := &Poll{
		server: s, caller: from, stated: strings.Clone(clip(req.Version)),
		info: Stream{ID: s.streams.Add(1), Type: t, Variant: xds.SotW, Node: node, Peer: from.Addr, Since: time.Now(), Poll: true},
	}
	if err := s.guarded(&p.info, func() error { return p.open(ctx, req) }); err != nil {
		err = s.guarded(&p.info, func() error { p.logRejection(err); return err })
		p.Close(err)
		return nil, err
	}
	return p, nil
}

func (p *Poll) logRejection(err error) {
	ctx := context.Background()
	if p.caller.Addr != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: p.caller.Addr})
	}
	p.server.logPollRejection(ctx, &p.info, err)
}

func (p *Poll) open(ctx context.Context, req xds.Request) error {
	s := p.server
	var err error
	p.watch, err = s.watchNode(ctx, req.Node)
	if err != nil {
		return err
	}
	p.info.of(p.watch)
	if s.observer != nil {
		s.observer.Opened(&p.info)
	}
	if err := s.checkID(p.info.Node); err != nil {
		return err
	}
	if n := size(p.info.Node); n > s.bounds.Node {
		return limitError(tooLarge, xds.LimitNode, codes.ResourceExhausted, "limit exceeded: a node of %d bytes, more than %d", n, s.bounds.Node)
	}
	view, _, err := p.watch.Next()
	if err != nil {
		return deny(err)
	}
	known := view != nil
	if !known {
		view = xds.Tables{}
	}
	session := p.session(view)
	if err := session.Receive(xds.Request{Type: req.Type, Node: req.Node, Version: req.Version, Names: req.Names}); err != nil {
		return rejected(err)
	}
	if !known {
		s.logWaits(&p.info)
		return errNotKnown
	}
	for i := range session.Interests() {
		p.watch.Interested(i.Type, i.Wildcard, i.Added, nil)
		p.names, p.all = i.Added, len(i.Added) == 0
		if i.Wildcard {
			p.names = append(p.names, xds.Wildcard)
		}
	}
	slices.Sort(p.names)
	if n := weight(p.names); n > s.bounds.Held {
		return limitError(tooMany, limitHeld, codes.ResourceExhausted, "limit exceeded: names of %d bytes in one poll, more than %d", n, s.bounds.Held)
	}
	for e := range session.Events() {
		s.event(&p.info, e, nil)
	}
	p.poller = pollerOf(&p.info, p.names)
	p.checkLastAnswer(req, p.version(view))
	if err := p.check(); err != nil || p.answer != nil {
		return err
	}
	return p.reserve()
}

// size estimates the memory of a node.
func size(n *xds.Node) int {
	return len(n.ID) + len(n.Cluster) + len(n.UserAgentName) + len(n.UserAgentVersion) + len(n.Region) + len(n.Zone) + len(n.SubZone) +
		weight(n.ClientFeatures) + len(n.Metadata)
}

// session returns a new session, which decides which resources the names cover.
func (p *Poll) session(view xds.View) *protocol.Session {
	limits := p.server.limits
	s := protocol.NewSession(xds.SotW, p.info.Type, view, protocol.Options{
		MaxNames: limits.MaxNames, MaxNameLen: limits.MaxNameLen,
		MaxResponse: math.MaxInt, // a poll has only one answer
		Grace:       -1,
	})
	s.Advance(time.Now())
	return s
}

// changes returns all resources that the requested names find in a view.
func (p *Poll) changes(view xds.View) *xds.Changes {
	s := p.session(view)
	if err := s.Receive(xds.Request{Names: p.names}); err != nil {
		panic("the request was received, but is refused: " + err.Error())
	}
	for r := range s.Responses() {
		return r.Changes
	}
	return &xds.Changes{} // a stream would stay silent
}

// version returns the version of the requested names in a view.
func (p *Poll) version(view xds.View) string {
	if p.all {
		return sum(view.Table(p.info.Type))
	}
	return versionOf(p.names, p.changes(view))
}

func sum(t *xds.Table) string { return t.Versions().Sum().String() }

func versionOf(names []string, c *xds.Changes) string {
	h := sha256.New()
	hashNames(h, names)
	// The sum of the resources, in any order.
	_, _ = io.WriteString(h, new(xds.Table).VersionWith(stamps(c)))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func hashNames(h io.Writer, names []string) {
	var b []byte
	for _, n := range names {
		b = append(binary.BigEndian.AppendUint64(b[:0], uint64(len(n))), n...)
		_, _ = h.Write(b) // a hash never returns an error
	}
}

func stamps(c *xds.Changes) iter.Seq[*xds.Stamp] {
	return func(yield func(*xds.Stamp) bool) {
		for _, r := range c.Upserts {
			if !yield(r.Stamp) {
				return
			}
		}
	}
}

// check makes the answer if the newest view has another version for the client.
func (p *Poll) check() error {
	view, _, err := p.watch.Next()
	if err != nil {
		return deny(err)
	}
	if view == nil || p.undecided(view) {
		return nil
	}
	v := p.version(view)
	caughtUp := !p.standing.partly && v == p.stated // the source now has the client's version
	switch {
	case v == p.skipVersion || caughtUp:
	case p.mayBeOlder(v):
		p.standing.due = true
	default:
		t := lastAnswer{version: v, to: digest(p.stated), poll: p.info.ID, conn: p.conn(), at: time.Now()}
		if v == p.retried.version {
			t.tries, t.refused = p.retried.tries+1, p.retried.refused
		}
		p.rememberAnswer(t)
		p.makeAnswer(view, v)
	}
	return nil
}

// undecided reports whether the view does not know yet if one of the names exists.
func (p *Poll) undecided(view xds.View) bool {
	u, ok := view.(xds.Undecided)
	return ok && slices.ContainsFunc(p.names, func(n string) bool {
		return u.Undecided(p.info.Type, n) && view.Table(p.info.Type).Lookup(n) == nil
	})
}

func (p *Poll) makeAnswer(view xds.View, version string) {
	p.answer = &xds.Response{Type: p.info.Type, Version: version, Nonce: version, Changes: p.changes(view)}
	p.server.event(&p.info, protocol.Event{Kind: protocol.Sent, Type: p.info.Type, Nonce: version, Version: version, Count: len(p.answer.Upserts)}, nil)
}

// Ready reports whether Wait would return at once.
func (p *Poll) Ready() bool { return p.answer != nil }

// Wait returns the answer. It returns nil if the client gets nothing new within the hold time. An
// error has a gRPC status: UNAVAILABLE if the server is drained or may be older than the client
// ([WithCatchUp]), CANCELED or DEADLINE_EXCEEDED if ctx is done. In these cases a transport may
// answer that nothing is new. After any other error there is no answer.
func (p *Poll) Wait(ctx context.Context, hold time.Duration) (*xds.Response, error) {
	if p.answer != nil {
		return p.answer, nil
	}
	err := p.server.guarded(&p.info, func() error {
		err := p.wait(ctx, hold)
		p.logRejection(err)
		return err
	})
	return p.answer, err
}

// wait returns when the poll has an answer, or when it will not get one.
func (p *Poll) wait(ctx context.Context, hold time.Duration) error {
	over := time.NewTimer(hold)
	defer over.Stop()
	until := time.Now().Add(hold)
	for {
		if p.standing.due {
			if err := p.catchUp(ctx, time.Until(until)); err != nil || p.answer != nil {
				return err
			}
		}
		select {
		case <-p.watch.C():
			if err := p.check(); err != nil || p.answer != nil {
				return err
			}
		case <-over.C:
			return nil
		case <-p.server.drain.began:
			return errDraining
		case l := <-p.lost: // the poll ends early
			p.logRejection(l.why)
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Unchanged returns the current state as an answer, for transports that must answer although nothing is new. An error
// has a gRPC status and means that there is no answer.
func (p *Poll) Unchanged() (*xds.Response, error) {
	view, _, err := p.watch.Next()
	switch {
	case err != nil:
		err = deny(err)
		p.logRejection(err)
		return nil, err
	case view == nil:
		return nil, errNotKnown
	}
	v := p.version(view)
	if v != p.skipVersion && p.mayBeOlder(v) { // the view has changed in the last moment
		return nil, errBehind
	}
	p.makeAnswer(view, v)
	return p.answer, nil
}

// Close ends the poll after its answer was sent. A non-nil err means that the answer was not sent, and the client got
// err instead.
func (p *Poll) Close(err error) {
	p.release()
	if err != nil && p.answer != nil {
		p.server.polls.answers.remove(p.poller)
	}
	defer p.server.drain.leave()
	if p.watch == nil {
		return
	}
	_ = p.server.guarded(&p.info, func() error { p.watch.Close(); return nil })
	if o := p.server.observer; o != nil {
		_ = p.server.guarded(&p.info, func() error { o.Closed(&p.info, err); return nil })
	}
}
