package soak

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// A client has one stream at a time. Its subscriptions and resources survive a
// stream, as in real clients.
type client struct {
	manner
	id   string
	dial func() (*grpc.ClientConn, error)
	note func(format string, args ...any) // writes a line to the log of messages

	mu     sync.Mutex // also serializes the sent messages
	subs   []*sub
	conn   *grpc.ClientConn
	stream grpc.ClientStream // nil: not connected
	n      int               // number of streams so far
	end    context.CancelFunc
	done   chan struct{} // closed when the receiver has ended
	lost   []string      // the errors with which the server ended streams
	polite bool          // ACKs each response at once
	moody  *rand.Rand    // decides how and when a response is answered
}

// A manner is the behaviour of a client.
type manner struct {
	delta bool
	only  *xds.Type // the type of its streams; nil: aggregated
	node  *core.Node
	meek  bool // sends no NACK
}

func (m manner) String() string {
	s := "sotw"
	if m.delta {
		s = "delta"
	}
	if m.only != nil {
		s += " only=" + m.only.Short
	}
	return fmt.Sprintf("%s %s %v", s, m.node.GetUserAgentName(), m.node.GetClientFeatures())
}

// A sub has the subscriptions and the resources of a client for one type.
type sub struct {
	typ      *xds.Type
	names    map[string]bool // "*" may be among them
	nameless bool            // no request had names, so "*" may be implied
	cache    map[string]held

	opened  bool // on this stream
	n       int  // number of responses so far
	nonce   string
	old     []string // earlier nonces
	pending []answer // not sent yet
	version string   // the last accepted version; SotW only
	steady  bool     // the subscription is unchanged since the first request of the stream
	exact   bool     // the cache has all resources of version

	said  map[string]response // unanswered responses, by nonce
	maybe map[string][]maybe  // by name

	sacred  bool // the client must not refuse the newest response
	refused bool // the client has sent a NACK since the last renewal of all resources
}

// A held is a resource that a client has accepted.
type held struct {
	body, version string // version: delta
	aliases       []string
	ttl           time.Duration
	expires       time.Time // zero: never
}

func (h held) same(o held) bool {
	return h.body == o.body && h.version == o.version && slices.Equal(h.aliases, o.aliases) && h.ttl == o.ttl
}

func (h held) String() string {
	sum := sha256.Sum256([]byte(h.body))
	return fmt.Sprintf("%x@%.4s%v/%v", sum[:2], h.version, h.aliases, h.ttl)
}

func newSub(t *xds.Type, names ...string) *sub {
	s := &sub{typ: t, names: map[string]bool{}, cache: map[string]held{}, said: map[string]response{}, maybe: map[string][]maybe{}}
	for _, n := range names {
		s.names[n] = true
	}
	return s
}

// A response is an unanswered response: its number, and the names that it reports.
type response struct {
	n     int
	names []string
}

// A maybe is a state of a resource that the client may hold from the server's view: it was
// in an unaccepted response, or the client had it before that response. The state
// is removed when the client accepts this or a later response about the name.
type maybe struct {
	held
	n int // number of the response
}

// hears records that a response reports a name: its resource, or nil for a removal.
func (s *sub) hears(nonce, name string, brings *held) {
	r := s.said[nonce]
	r.names = append(r.names, name)
	s.said[nonce] = r
	if h, has := s.cache[name]; has {
		s.maybe[name] = append(s.maybe[name], maybe{h, r.n})
	}
	if brings != nil {
		s.maybe[name] = append(s.maybe[name], maybe{*brings, r.n})
	}
}

// settles records the first answer to a response, and ignores later ones.
func (s *sub) settles(delta bool, nonce string, nack bool) {
	r, ok := s.said[nonce]
	if delete(s.said, nonce); !ok || nack {
		return
	}
	names := r.names
	if !delta && s.typ.FullState { // a missing name is a removal
		names = slices.Collect(maps.Keys(s.maybe))
	}
	for _, name := range names {
		s.maybe[name] = slices.DeleteFunc(s.maybe[name], func(m maybe) bool { return m.n <= r.n })
	}
}

// An answer is an ACK or a NACK that the client has not sent yet.
type answer struct {
	nonce, version string
	nack           bool
}

func (s *sub) everything() bool {
	return s.names[xds.Wildcard] || s.nameless && s.typ.Implicit
}

// covers reports whether the client subscribes to a resource: "the client will
// silently ignore any supplied resources that were not explicitly requested".
func (s *sub) covers(delta bool, name string, aliases []string) bool {
	if s.everything() || s.names[name] {
		return true
	}
	if !delta {
		return false
	}
	return s.names[s.typ.Collection(name)] || slices.ContainsFunc(aliases, func(a string) bool { return s.names[a] })
}

// forget drops resources to which the client no longer subscribes.
func (s *sub) forget(delta bool) {
	maps.DeleteFunc(s.cache, func(name string, h held) bool { return !s.covers(delta, name, h.aliases) })
	for name := range s.maybe {
		s.maybe[name] = slices.DeleteFunc(s.maybe[name], func(m maybe) bool { return !s.covers(delta, name, m.aliases) })
	}
}

// losesAll removes all resources of a type from a SotW client. The server cannot know this:
// the client may later accept an earlier version, and state it on its next stream. So
// the resources become possible ones (maybe).
func (s *sub) losesAll() {
	for name, h := range s.cache {
		s.maybe[name] = append(s.maybe[name], maybe{held: h})
	}
	clear(s.cache)
	s.version, s.exact = "", false
}

// byAlias drops the resources that only an alias matches, and reports whether it dropped
// any.
func (s *sub) byAlias() bool {
	n := len(s.cache)
	maps.DeleteFunc(s.cache, func(name string, _ held) bool { return !s.covers(true, name, nil) })
	return len(s.cache) < n
}

func (c *client) sub(t *xds.Type) *sub {
	for _, s := range c.subs {
		if s.typ.Is(t) {
			return s
		}
	}
	return nil
}

// connect opens a stream, on a new connection if anew is set.
func (c *client) connect(anew bool) error {
	if anew && c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
	if c.conn == nil {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		c.conn = conn
	}
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	switch {
	case c.only != nil && c.delta:
		method = "/" + c.only.Service + "/" + c.only.Delta
	case c.only != nil:
		method = "/" + c.only.Service + "/" + c.only.Stream
	case c.delta:
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	ctx, cancel := context.WithCancel(context.Background())
	giveUp := time.AfterFunc(10*time.Second, cancel)
	defer giveUp.Stop()
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.stream, c.end, c.done = stream, cancel, make(chan struct{})
	for _, s := range c.subs {
		s.opened, s.nonce, s.old, s.pending, s.said = false, "", nil, nil, map[string]response{}
	}
	// The new stream omits types without subscriptions.
	c.subs = slices.DeleteFunc(c.subs, func(s *sub) bool { return len(s.names) == 0 && !s.nameless })
	c.note("%s/%d opens a stream: %v", c.id, c.n, c.manner)
	go c.receive(ctx, stream, c.n, c.done)
	return nil
}

// cut ends the stream as the client.
func (c *client) cut() {
	c.mu.Lock()
	if c.stream == nil {
		c.mu.Unlock()
		return
	}
	c.note("%s/%d cuts its stream", c.id, c.n)
	c.stream = nil
	end, done := c.end, c.done
	c.mu.Unlock()
	end()
	<-done
}

// close ends the stream and the connection.
func (c *client) close() {
	c.cut()
	if c.conn != nil {
		c.conn.Close()
	}
}

func (c *client) receive(ctx context.Context, stream grpc.ClientStream, n int, done chan struct{}) {
	defer close(done)
	for {
		var err error
		var sotw discovery.DiscoveryResponse
		var delta discovery.DeltaDiscoveryResponse
		if c.delta {
			err = stream.RecvMsg(&delta)
		} else {
			err = stream.RecvMsg(&sotw)
		}
		c.mu.Lock()
		if c.n != n || c.stream == nil || ctx.Err() != nil {
			c.mu.Unlock()
			return // the client ended the stream
		}
		if err != nil {
			c.note("%s/%d the server ended the stream: %v", c.id, n, err)
			c.lost = append(c.lost, err.Error())
			c.stream = nil
			c.end()
			c.mu.Unlock()
			return
		}
		if c.delta {
			c.takeDelta(&delta)
		} else {
			c.takeSotw(&sotw)
		}
		c.mu.Unlock()
	}
}

// expect records a response. It returns the subscription, and whether to send a NACK.
func (c *client) expect(url, nonce, version string, empty bool, says string) (s *sub, nack bool, err error) {
	t := xds.TypeOf(url)
	c.note("%s/%d < %s nonce=%s%s", c.id, c.n, t, nonce, says)
	if s = c.sub(t); s == nil || !s.opened {
		c.lost = append(c.lost, "a response of a type without a subscription: "+url)
		return nil, false, errors.New("not subscribed")
	}
	// A SotW client that refuses an empty response keeps its resources until the next
	// response. It would then rightly differ from a new client.
	s.sacred = empty && !c.delta
	nack = !c.polite && !c.meek && c.moody.IntN(8) == 0 && !s.sacred
	s.refused = s.refused || nack
	if s.nonce != "" {
		s.old = append(s.old, s.nonce)
	}
	s.nonce = nonce
	s.n++
	s.said[nonce] = response{n: s.n}
	s.pending = append(s.pending, answer{nonce, version, nack})
	return s, nack, nil
}

// answered answers the newest response now, or leaves it pending.
func (c *client) answered(s *sub) {
	if c.polite || c.moody.IntN(3) > 0 {
		c.answer(s, len(s.pending)-1)
	}
}

func (c *client) takeDelta(m *discovery.DeltaDiscoveryResponse) {
	var says strings.Builder
	for _, r := range m.GetResources() {
		fmt.Fprintf(&says, " %s", describe(r.GetName(), r.GetVersion(), r))
	}
	for _, name := range m.GetRemovedResources() {
		fmt.Fprintf(&says, " -%s", name)
	}
	s, nack, err := c.expect(m.GetTypeUrl(), m.GetNonce(), "", len(m.GetResources()) == 0, says.String())
	if err != nil {
		return
	}
	for _, r := range m.GetResources() {
		switch {
		case r.GetResource() != nil:
			h := holding(r, r.GetResource(), r.GetVersion())
			s.hears(m.GetNonce(), r.GetName(), &h)
		case r.GetTtl() == nil:
			s.hears(m.GetNonce(), r.GetName(), nil)
		}
		switch h, has := s.cache[r.GetName()]; {
		case r.GetResource() == nil && r.GetTtl() == nil: // the resource does not exist
			delete(s.cache, r.GetName())
		case r.GetResource() == nil: // a heartbeat
			if has {
				h.expires = time.Now().Add(h.ttl)
				s.cache[r.GetName()] = h
			}
		case nack:
		case s.covers(true, r.GetName(), r.GetAliases()):
			s.cache[r.GetName()] = holding(r, r.GetResource(), r.GetVersion())
		default: // no subscription matches the resource any more, so an earlier copy goes, too
			delete(s.cache, r.GetName())
		}
	}
	for _, name := range m.GetRemovedResources() {
		s.hears(m.GetNonce(), name, nil)
		delete(s.cache, name)
	}
	c.answered(s)
}

func (c *client) takeSotw(m *discovery.DiscoveryResponse) {
	var says strings.Builder
	fmt.Fprintf(&says, " version=%s", m.GetVersionInfo())
	type named struct {
		name string
		w    *discovery.Resource
		body *anypb.Any
	}
	var all []named
	for _, a := range m.GetResources() {
		w := &discovery.Resource{}
		if a.MessageIs(w) {
			if err := a.UnmarshalTo(w); err != nil {
				c.lost = append(c.lost, err.Error())
			}
			all = append(all, named{w.GetName(), w, w.GetResource()})
		} else {
			all = append(all, named{first(a.GetValue()), &discovery.Resource{Resource: a}, a})
		}
		x := all[len(all)-1]
		fmt.Fprintf(&says, " %s", describe(x.name, "", x.w))
	}
	s, nack, err := c.expect(m.GetTypeUrl(), m.GetNonce(), m.GetVersionInfo(), len(m.GetResources()) == 0, says.String())
	if err != nil {
		return
	}
	for _, x := range all {
		if x.body != nil {
			h := holding(x.w, x.body, "")
			s.hears(m.GetNonce(), x.name, &h)
		}
	}
	if s.typ.FullState {
		for name := range s.cache {
			if !slices.ContainsFunc(all, func(x named) bool { return x.name == name }) {
				s.hears(m.GetNonce(), name, nil)
			}
		}
	}
	if !nack {
		if s.typ.FullState {
			was := s.cache
			s.cache = map[string]held{}
			for _, x := range all { // resources that the response lacks are removed
				if h, ok := was[x.name]; ok {
					s.cache[x.name] = h
				}
			}
		}
		for _, x := range all {
			h, has := s.cache[x.name]
			switch {
			case x.body == nil:
				if has {
					h.expires = time.Now().Add(h.ttl)
					s.cache[x.name] = h
				}
			case s.covers(false, x.name, nil):
				s.cache[x.name] = holding(x.w, x.body, "")
			}
		}
		s.version, s.exact = m.GetVersionInfo(), s.steady
	}
	s.pending[len(s.pending)-1].version = s.version // a NACK has the version in use
	c.answered(s)
}

func holding(r *discovery.Resource, body *anypb.Any, version string) held {
	h := held{body: string(body.GetValue()), version: version, aliases: r.GetAliases()}
	if r.GetTtl() != nil {
		h.ttl = r.GetTtl().AsDuration()
		h.expires = time.Now().Add(h.ttl)
	}
	return h
}

func describe(name, version string, r *discovery.Resource) string {
	if version != "" {
		name += "@" + version[:min(4, len(version))]
	}
	if len(r.GetAliases()) > 0 {
		name += fmt.Sprint(r.GetAliases())
	}
	if r.GetTtl() != nil {
		name += "/" + r.GetTtl().AsDuration().String()
	}
	if r.GetResource() == nil {
		name = "~" + name
	}
	return name
}

// first returns field 1 of a message, which is the name in every type of SotW.
func first(b []byte) string {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return "?"
	}
	s, _ := protowire.ConsumeString(b[n:])
	return s
}

// answer sends the pending answer at an index.
func (c *client) answer(s *sub, at int) {
	a := s.pending[at]
	s.pending = slices.Delete(s.pending, at, at+1)
	c.say(s, says{nonce: a.nonce, version: a.version, nack: a.nack})
}

// says has the fields of a request, except its type.
type says struct {
	names          []string // SotW only; nil: the subscribed names
	subscribe      []string
	unsubscribe    []string
	initial        map[string]string
	nonce, version string
	nack           bool
}

// say sends a request, or nothing if the stream has ended.
func (c *client) say(s *sub, x says) {
	if c.stream == nil {
		return
	}
	var bad *status.Status
	if x.nack {
		bad = &status.Status{Code: 3, Message: "no"}
	}
	var node *core.Node
	if !slices.ContainsFunc(c.subs, func(o *sub) bool { return o.opened }) {
		node = c.node
	}
	var m proto.Message
	line := fmt.Sprintf("%s/%d > %s", c.id, c.n, s.typ)
	if c.delta {
		m = &discovery.DeltaDiscoveryRequest{
			Node: node, TypeUrl: s.typ.URL, ResponseNonce: x.nonce, ErrorDetail: bad,
			ResourceNamesSubscribe: x.subscribe, ResourceNamesUnsubscribe: x.unsubscribe, InitialResourceVersions: x.initial,
		}
		line += list(" sub=", x.subscribe) + list(" unsub=", x.unsubscribe)
		for _, name := range slices.Sorted(maps.Keys(x.initial)) {
			v := x.initial[name]
			line += fmt.Sprintf(" has=%s@%s", name, v[:min(4, len(v))])
		}
	} else {
		names := x.names
		if names == nil {
			names = slices.Sorted(maps.Keys(s.names))
		}
		m = &discovery.DiscoveryRequest{Node: node, TypeUrl: s.typ.URL, ResponseNonce: x.nonce, VersionInfo: x.version, ErrorDetail: bad, ResourceNames: names}
		line += list(" names=", names)
		if x.version != "" {
			line += " version=" + x.version
		}
	}
	if x.nonce != "" {
		line += " nonce=" + x.nonce
	}
	if x.nack {
		line += " NACK"
	}
	c.note("%s", line)
	s.opened = true
	s.settles(c.delta, x.nonce, x.nack)
	_ = c.stream.SendMsg(m) // receive records the error of the stream
}

func list(field string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return field + strings.Join(names, ",")
}
