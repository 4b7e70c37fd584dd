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

// MaxHold is how long a poll is held at most.
const MaxHold = 30 * time.Second

// A Poll is a subscription that is answered once: a request over REST or to a
// Fetch method. "When the poll period is set to a small value, with the
// intention of long polling, then there is also a requirement to avoid sending
// a DiscoveryResponse unless a change to the underlying resources has occurred
// via a resource update."
//
// The version of an answer is a hash of the names asked for and of what they
// are, so that other names' changes wake nobody and a new name is answered; for
// "*" alone it is the version of the type, as on streams. The nonce is the
// version. A client that has the current version, or has refused it, waits.
//
// To an [Observer] a poll is a stream of one request. One goroutine at a time
// may use it.
type Poll struct {
	server *Server
	info   Stream
	watch  Watch
	names  []string // asked for, in order; with "*", if it is
	all    bool     // "*" alone is
	stated string   // the version that the client has; "": none
	poller poller
	caller Caller

	before   telling       // what is to be told again
	but      string        // the version that is no news; "": each is
	standing standing      // of the version that the client has
	answer   *xds.Response // what to answer, as soon as that is known
	seat     *seat         // nil: it is not held
	stored   *stored       // what it has meanwhile; nil: the same
	lost     loss          // of one of them
}

// polls is what a server knows of polls.
type polls struct {
	told   *lru[poller, telling]         // answers that are not acknowledged
	conns  *lru[netip.AddrPort, traffic] // on which polls came
	held   *seats
	cellar *cellar
}

func newPolls(n, heldInAll int) *polls {
	full := reject(tooManyPolls, codes.Unavailable, "limit exceeded: %d polls are held, the maximum of this server; try again later", n)
	return &polls{held: newSeats(n, full, errLostPoll), cellar: newCellar((heldInAll + pollsPart - 1) / pollsPart), told: newLRU[poller, telling](n), conns: newLRU[netip.AddrPort, traffic](n)}
}

// A Caller is who polls, as far as its transport can tell.
type Caller struct {
	Addr net.Addr // nil: not known

	// InTurn says that a connection carries one poll after the other, as in
	// HTTP/1.1: when the next one comes, the last answer was received.
	InTurn bool
}

// Poll begins a poll of a type by a request, of which it keeps no memory. An
// error is one of gRPC's status: UNAVAILABLE if the client should try again
// later, INVALID_ARGUMENT or RESOURCE_EXHAUSTED if the request is at fault.
// Close must be called if there is none. The context is kept for as long as the poll, for who
// says what a node may see ([Source]), and cancels nothing. The type must not be nil; a Caller may be the zero value.
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
		err = s.guarded(&p.info, func() error { p.rejects(err); return err })
		p.Close(err)
		return nil, err
	}
	return p, nil
}

func (p *Poll) rejects(err error) {
	ctx := context.Background()
	if p.caller.Addr != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: p.caller.Addr})
	}
	p.server.rejectsPoll(ctx, &p.info, err)
}

func (p *Poll) open(ctx context.Context, req xds.Request) error {
	s := p.server
	var err error
	if p.watch, err = s.watch(ctx, req.Node); err != nil {
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
		return exceeds(tooLarge, xds.LimitNode, codes.ResourceExhausted, "limit exceeded: a node of %d bytes, more than %d", n, s.bounds.Node)
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
		p.names, p.all = i.Added, i.Wildcard && len(i.Added) == 0
		if i.Wildcard {
			p.names = append(p.names, xds.Wildcard)
		}
	}
	slices.Sort(p.names)
	if n := weight(p.names); n > s.bounds.Held {
		return exceeds(tooMany, limitHeld, codes.ResourceExhausted, "limit exceeded: names of %d bytes in one poll, more than %d", n, s.bounds.Held)
	}
	for e := range session.Events() {
		s.event(&p.info, e)
	}
	p.poller = pollerOf(&p.info, p.names)
	p.judge(req, p.version(view))
	if err := p.look(); err != nil || p.answer != nil {
		return err
	}
	return p.sit()
}

// size is about how much memory a node takes.
func size(n *xds.Node) int {
	return len(n.ID) + len(n.Cluster) + len(n.UserAgentName) + len(n.UserAgentVersion) + len(n.Region) + len(n.Zone) + len(n.SubZone) +
		weight(n.ClientFeatures) + len(n.Metadata)
}

// session returns a session that has told nothing. What is covered by which
// names is its business alone.
func (p *Poll) session(view xds.View) *protocol.Session {
	limits := p.server.limits
	s := protocol.NewSession(xds.SotW, p.info.Type, view, protocol.Options{
		MaxNames: limits.MaxNames, MaxNameLen: limits.MaxNameLen,
		MaxResponse: math.MaxInt, // there is but one answer
		Grace:       -1,
	})
	s.Advance(time.Now())
	return s
}

// changes is all that the names asked for find in a view.
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

// version is the version of what the names find in a view.
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
		_, _ = h.Write(b) // a hash takes all
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

// look makes the answer if the newest view has news for the client.
func (p *Poll) look() error {
	view, _, err := p.watch.Next()
	if err != nil {
		return deny(err)
	}
	if view == nil || p.undecided(view) {
		return nil
	}
	v := p.version(view)
	caughtUp := p.standing.asked && !p.standing.partly && v == p.stated // what was newer is here now
	switch {
	case v == p.but || caughtUp:
	case p.older(v):
		p.standing.due = true
	default:
		t := telling{version: v, to: digest(p.stated), poll: p.info.ID, conn: p.conn(), at: time.Now()}
		if v == p.before.version {
			t.tries, t.refused = p.before.tries+1, p.before.refused
		}
		p.tells(t)
		p.tell(view, v)
	}
	return nil
}

// undecided reports whether the view is still looking for one of the names, and has nothing of it.
func (p *Poll) undecided(view xds.View) bool {
	u, ok := view.(xds.Undecided)
	return ok && slices.ContainsFunc(p.names, func(n string) bool {
		return u.Undecided(p.info.Type, n) && view.Table(p.info.Type).Lookup(n) == nil
	})
}

func (p *Poll) tell(view xds.View, version string) {
	p.answer = &xds.Response{Type: p.info.Type, Version: version, Nonce: version, Changes: p.changes(view)}
	p.server.event(&p.info, protocol.Event{Kind: protocol.Sent, Type: p.info.Type, Nonce: version, Version: version, Count: len(p.answer.Upserts)})
}

// Due reports whether Wait would return at once.
func (p *Poll) Due() bool { return p.answer != nil }

// Wait returns the answer when there is one, and nil if there is nothing new
// after the time to hold. An error is one of gRPC's status: UNAVAILABLE if the
// server is drained, or what it has may be older than what the client has ([WithNewest]), CANCELED or DEADLINE_EXCEEDED if
// ctx is done; then there is nothing new either. Any other says that there is no answer to be had.
func (p *Poll) Wait(ctx context.Context, hold time.Duration) (*xds.Response, error) {
	if p.answer != nil {
		return p.answer, nil
	}
	if err := p.server.guarded(&p.info, func() error { return p.wait(ctx, hold) }); err != nil {
		return nil, err
	}
	return p.answer, nil
}

// wait returns when there is an answer, or there will be none.
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
			if err := p.look(); err != nil || p.answer != nil {
				p.rejects(err)
				return err
			}
		case <-over.C:
			return nil
		case <-p.server.drain.began:
			return errDraining
		case l := <-p.lost: // it is over before its time
			p.rejects(l.why)
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Unchanged is the answer of those who have to give one though nothing is new. An error is one of
// gRPC's status: there is no answer.
func (p *Poll) Unchanged() (*xds.Response, error) {
	view, _, err := p.watch.Next()
	switch {
	case err != nil:
		err = deny(err)
		p.rejects(err)
		return nil, err
	case view == nil:
		return nil, errNotKnown
	}
	v := p.version(view)
	if v != p.but && p.older(v) { // it is new, at the last moment
		return nil, errBehind
	}
	p.tell(view, v)
	return p.answer, nil
}

// Close ends the poll after its answer was sent. An error says that it was not,
// and what the client was told instead.
func (p *Poll) Close(err error) {
	p.stand()
	if err != nil && p.answer != nil {
		p.server.polls.told.remove(p.poller)
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
