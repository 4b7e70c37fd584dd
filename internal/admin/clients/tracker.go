package clients

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminapi "github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker follows the events of a server's streams and keeps the state of each client. A Tracker is
// safe for concurrent use; create it with [New].
//
// A stream event finds its row without a lock. The event then locks that row and, briefly, the ring of
// events. Opening and closing a stream locks the index of clients. No lock is held during I/O. The lock
// of a row is taken before the locks of history, causes, ring and bell.
type Tracker struct {
	opts        Options
	ring        ring
	bell        bell
	causes      causes
	turnedAway  turnedAway
	history     refusalHistory
	propagation propagation
	epoch       atomic.Uint64 // counts calls of GroupsChanged, from 1
	rows        sync.Map      // *server.Stream → *row

	mu      sync.RWMutex
	clients map[clientKey]*client
	nodes   map[string]*node
	left    []*departed // the clients that disconnected last, as a ring buffer
	oldest  int         // index in left
}

// A clientKey identifies a client by node ID and peer address. For a client without a node ID it also has
// the stream.
type clientKey struct {
	node, peer string
	stream     uint64 // 0: the client has a node ID
}

// A client is a node at one address, with all its streams.
type client struct {
	clientID
	key     clientKey
	home    *node
	cluster string
	agent   string
	envoy   bool
	since   int64
	groups  atomic.Pointer[grouping]

	reached  reached
	complete atomic.Bool // the client has accepted a complete configuration: see Ready

	// The fields below are guarded by Tracker.mu.
	streams []*row
	ended   []*row // recently ended streams, because the streams of a broken connection end one by one
	at      int    // index in node.clients
}

// A grouping is the cached result of Options.Groups and Options.Identity at an epoch.
type grouping struct {
	epoch    uint64
	groups   []string
	identity string
}

// A node has all clients with one node ID. It exists while at least one of these clients is connected or
// remembered.
type node struct {
	clients  []*client
	left     int             // number of remembered disconnected clients
	connects [maxFlaps]int64 // times when a client connected while the node had no other client, newest first
	leaving  atomic.Pointer[leaving]
}

// A departed client has disconnected.
type departed struct {
	*client
	rows []*row
	at   int64
	code codes.Code
	why  string
}

const (
	// maxEnded and endedFor limit the ended streams that are kept for a client with open streams.
	maxEnded = 8
	endedFor = 5 * time.Second

	// contentAfter is the time after which a client has accepted the resources that it stated in its
	// first request, if the server has no response to send. The next response then ends the client's
	// refusal period, as of the start of the stream.
	contentAfter = 10 * time.Second
)

// New returns an empty tracker.
func New(o Options) *Tracker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Events <= 0 {
		o.Events = 4096
	}
	if o.Departed <= 0 {
		o.Departed = 1000
	}
	t := &Tracker{opts: o, clients: map[clientKey]*client{}, nodes: map[string]*node{}}
	t.ring.size = o.Events
	t.epoch.Store(1)
	return t
}

func (t *Tracker) now() int64 { return t.opts.Now().UnixNano() }

// GroupsChanged makes the tracker call Options.Groups and Options.Identity again for each client.
func (t *Tracker) GroupsChanged() { t.epoch.Add(1) }

// Opened implements [server.Observer].
func (t *Tracker) Opened(st *server.Stream) {
	if st.Poll {
		return
	}
	now := t.now()
	key := clientKey{node: st.Node.ID}
	if st.Peer != nil {
		key.peer = st.Peer.String()
	}
	if key.node == "" {
		key.stream = st.ID
	}
	api := "ADS"
	if st.Type != nil {
		api = clip(st.Type.Short, maxName)
	}
	r := &row{stream: st, info: adminapi.Stream{ID: st.ID, API: api, Variant: st.Variant.String(), Since: st.Since}}
	c, first := t.addStream(key, st, r, now)
	t.rows.Store(st, r)
	if first {
		t.ring.add(&record{kind: "connect", client: &c.clientID, stream: st.ID, at: now, text: strings.TrimSpace(api + " " + r.info.Variant + " " + c.agent)})
	}
	t.bell.ring()
}

// addStream adds a stream to its client and reports whether the client is new.
func (t *Tracker) addStream(key clientKey, st *server.Stream, r *row, now int64) (_ *client, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[key]
	if c == nil {
		first = true
		key.node = strings.Clone(key.node) // without the copy, the whole request would stay in memory
		c = &client{
			clientID: clientID{node: key.node, peer: key.peer}, key: key, since: st.Since.UnixNano(), cluster: clip(st.Node.Cluster, maxName),
			agent: clip(strings.TrimSpace(st.Node.UserAgentName+" "+st.Node.UserAgentVersion), maxName), envoy: st.Node.UserAgentName == "envoy",
		}
		t.clients[key] = c
		n := t.nodes[key.node]
		if n == nil {
			n = &node{}
			t.nodes[key.node] = n
		}
		if len(n.clients) == 0 {
			copy(n.connects[1:], n.connects[:])
			n.connects[0] = now
		}
		c.at, c.home = len(n.clients), n
		n.clients = append(n.clients, c)
	}
	r.client = c
	c.streams = append(c.streams, r)
	t.prune(c, now)
	return c, first
}

// prune forgets the streams of a client that ended more than endedFor ago, and the oldest ended streams
// above maxEnded.
func (t *Tracker) prune(c *client, now int64) {
	n := max(len(c.ended)-maxEnded, 0)
	for n < len(c.ended) && now-c.ended[n].ended > int64(endedFor) {
		n++
	}
	t.free(c.ended[:n])
	c.ended = slices.Delete(c.ended, 0, n)
	if len(c.ended) == 0 {
		c.ended = nil
	}
}

// Closed implements [server.Observer].
func (t *Tracker) Closed(st *server.Stream, err error) {
	v, ok := t.rows.LoadAndDelete(st)
	if !ok {
		return
	}
	r, now := v.(*row), t.now()
	code, _ := reason(err)
	t.leaves(r, st, code, now)
	if left := t.removeStream(r, err, now); left != nil {
		t.ring.add(&record{kind: "leave", client: &r.client.clientID, stream: st.ID, at: now, text: left.text()})
	}
	t.bell.ring()
}

// archive removes the stream from its row, and keeps the state of at most maxKeptTypes types.
func (t *Tracker) archive(r *row, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.stream = now, nil
	all := r.types
	r.types = slices.Clone(all[:min(len(all), maxKeptTypes)])
	for i := maxKeptTypes; i < len(all); i++ {
		t.clearRefusal(&all[i])
	}
}

// free releases the causes of the refusals on ended streams.
func (t *Tracker) free(rows []*row) {
	for _, r := range rows {
		r.mu.Lock()
		for i := range r.types {
			t.clearRefusal(&r.types[i])
		}
		r.types = nil
		r.mu.Unlock()
	}
}

// removeStream removes a stream from its client. If it was the client's last stream, the result is
// the departed client; otherwise nil.
func (t *Tracker) removeStream(r *row, err error, now int64) *departed {
	code, why := reason(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.archive(r, now)
	c := r.client
	c.streams = slices.DeleteFunc(c.streams, func(o *row) bool { return o == r })
	c.ended = append(c.ended, r)
	t.prune(c, now)
	if len(c.streams) > 0 {
		return nil
	}
	delete(t.clients, c.key)
	n := t.nodes[c.node]
	last := n.clients[len(n.clients)-1]
	n.clients[c.at], last.at = last, c.at
	n.clients[len(n.clients)-1] = nil
	n.clients = n.clients[:len(n.clients)-1]
	n.left++
	d := &departed{client: c, rows: c.ended, at: now, code: code, why: why}
	c.ended, c.streams = nil, nil
	if len(t.left) < t.opts.Departed {
		t.left = append(t.left, d)
		return d
	}
	gone := t.left[t.oldest].node
	t.free(t.left[t.oldest].rows)
	t.left[t.oldest] = d
	if t.oldest+1 < len(t.left) {
		t.oldest++
	} else {
		t.oldest = 0
	}
	if n := t.nodes[gone]; n != nil {
		n.left--
		if n.left == 0 && len(n.clients) == 0 {
			delete(t.nodes, gone)
		}
	}
	return d
}

// reason returns the status code and the text for the end of a stream.
func reason(err error) (codes.Code, string) {
	s := status.Convert(err)
	switch {
	case s.Message() == context.Canceled.Error(): // gRPC reports a cancellation by the peer with this text
		return s.Code(), "the client canceled its stream, or its connection ended"
	case s.Message() != "":
		return s.Code(), clip(s.Message(), maxName)
	}
	return s.Code(), "the client ended its stream"
}

func (d *departed) text() string { return d.code.String() + ": " + d.why }

// Event implements [server.Observer].
func (t *Tracker) Event(st *server.Stream, e protocol.Event) {
	v, ok := t.rows.Load(st)
	if !ok {
		return
	}
	r, now := v.(*row), t.now()
	said := record{client: &r.client.clientID, stream: st.ID, typ: e.Type, version: e.Version, at: now}
	switch e.Kind {
	case protocol.Opened:
		r.mu.Lock()
		u := r.add(e.Type)
		u.stated = e.Version != "" || e.Count > 0
		u.current = u.stated
		r.mu.Unlock()
		return
	case protocol.Subscribed:
		t.subscribed(r, &e)
		said.kind, said.count = "subscribe", count(e.Count)
		if e.Wildcard {
			said.text = "*"
		}
	case protocol.Sent:
		t.observe()
		said.nonce = protocol.ParseNonce(e.Nonce)
		r.mu.Lock()
		u := r.add(e.Type)
		if u.current && now-st.Since.UnixNano() >= int64(contentAfter) {
			t.refusalEnded(r, u.typ, st.Since.UnixNano())
		}
		u.send(&e, said.nonce, now)
		r.mu.Unlock()
		said.kind, said.count, said.removed = "send", count(e.Count+e.Beats), count(e.Removed)
	case protocol.Acked:
		r.client.home.answers(e.Type)
		said.nonce, said.took = protocol.ParseNonce(e.Nonce), e.Took
		m, quiet := t.acked(r, &e, said.nonce, now)
		if quiet && m.at != 0 && !e.Repeated {
			t.observe()
			t.propagation.accepted(r, e.Type, m.at, now)
		}
		said.kind, said.count, said.removed = "ack", m.count, m.removed
	case protocol.Nacked:
		r.client.home.answers(e.Type)
		said.nonce, said.took = protocol.ParseNonce(e.Nonce), e.Took
		var m pending
		said.cause, m = t.nacked(r, st, &e, said.nonce, now)
		said.kind, said.count, said.removed = "nack", m.count, m.removed
	case protocol.Recovered:
		t.recovered(r, e.Type, now)
		said.kind, said.took = "recover", e.Took
	case protocol.Waived:
		said.kind, said.by, said.count, said.text = "wait", e.By, 1, clip(e.Name, maxName)
	default:
		return
	}
	if !e.Repeated && (e.Kind != protocol.Sent || !e.Retry) { // HEAL-2: retries do not displace other events
		t.ring.add(&said)
	}
	if e.Kind != protocol.Sent {
		t.bell.ring()
	}
}

func (t *Tracker) subscribed(r *row, e *protocol.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(e.Type)
	u.names, u.wildcard = count(e.Count), e.Wildcard
}

// acked notes an ACK. It returns the accepted response, and whether the client has answered all responses of the stream.
func (t *Tracker) acked(r *row, e *protocol.Event, nonce uint64, now int64) (m pending, quiet bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(e.Type)
	m = u.answer(r.variant(), nonce)
	u.acked = message{at: now, nonce: nonce, version: e.Version, count: m.count, removed: m.removed}
	u.accepted = cmp.Or(u.accepted, now)
	if !e.Refuses && u.refusal == nil { // the node may have refused the type on an earlier stream
		t.refusalEnded(r, u.typ, now)
	}
	return m, !slices.ContainsFunc(r.types, func(u typeRow) bool { return u.oldest() != 0 || u.refusal != nil })
}

func (t *Tracker) nacked(r *row, st *server.Stream, e *protocol.Event, nonce uint64, now int64) (*cause, pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(e.Type)
	m := u.answer(r.variant(), nonce)
	all := m.count + m.removed
	c, partly := causeOf(e, int(all))
	if !e.Refuses { // the client has already accepted a later response
		return c, m
	}
	if u.refusal == nil {
		t.refusalBegan(r, st, c, all, u.accepted != 0 || u.stated, now)
	}
	since := now
	if u.refusal != nil {
		since = u.refusal.since
	}
	t.clearRefusal(u)
	c = t.causes.intern(c)
	u.refusal = &refusal{cause: c, since: since, at: now, nonce: nonce, version: e.Version, partly: partly}
	return c, m
}

// recovered notes that the client no longer refuses resources of a type (HEAL-5).
func (t *Tracker) recovered(r *row, typ *xds.Type, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(typ)
	t.refusalEnded(r, u.typ, now)
	t.clearRefusal(u)
}

// clearRefusal removes the refusal of a type.
func (t *Tracker) clearRefusal(u *typeRow) {
	if u.refusal != nil {
		t.causes.release(u.refusal.cause)
		u.refusal = nil
	}
}

func (r *row) variant() xds.Variant {
	if r.stream == nil {
		return xds.SotW
	}
	return r.stream.Variant
}

// clip returns a copy of at most n bytes of s, so that s itself is not kept in memory.
func clip(s string, n int) string {
	return strings.Clone(strings.ToValidUTF8(text.Head(s, n), "\uFFFD"))
}

// host returns the address of a peer without its port.
func host(peer string) string {
	if h, _, err := net.SplitHostPort(peer); err == nil {
		return h
	}
	return peer
}
