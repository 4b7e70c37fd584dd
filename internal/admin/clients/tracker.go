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

// A Tracker folds what happens on the streams of a server into what there is to know of its
// clients. It is safe for concurrent use; create it by [New].
//
// A step of a stream looks its row up, which no lock guards, and locks that row and for a
// moment the ring of events. Streams that come and go lock the index of clients. A lock is held
// for memory only; a row's before those of spells, causes, ring and bell.
type Tracker struct {
	opts   Options
	ring   ring
	bell   bell
	causes causes
	turned turned
	spells spells
	epoch  atomic.Uint64 // of groups; from 1
	rows   sync.Map      // *server.Stream → *row

	mu      sync.RWMutex
	clients map[clientKey]*client
	nodes   map[string]*node
	left    []*departed // the newest, in a ring
	oldest  int         // of left
}

// A clientKey is a node at an address. One that does not say which it is, is its stream.
type clientKey struct {
	node, peer string
	stream     uint64 // 0: it says which node it is
}

// A client is all streams of a node from an address.
type client struct {
	about
	key     clientKey
	cluster string
	agent   string
	envoy   bool
	since   int64
	groups  atomic.Pointer[grouping]

	// By Tracker.mu.
	streams []*row
	late    []*row // that have ended a moment ago: when a connection breaks all do, one by one
	at      int    // in clients of its node
}

// A grouping is what groups a client's node had at an epoch.
type grouping struct {
	epoch    uint64
	groups   []string
	identity string
}

// A node is all clients with an id. It is there as long as one is connected or remembered.
type node struct {
	clients  []*client
	left     int             // how many are remembered that have left
	connects [maxFlaps]int64 // when it came, while none of it was here; the last first
}

// A departed client has left.
type departed struct {
	*client
	rows []*row
	at   int64
	code codes.Code
	why  string
}

const (
	// maxLate is how many streams of a client that have ended are kept while it has others,
	// and for how long.
	maxLate = 8
	lateFor = 5 * time.Second

	// contentAfter is how long a client was told nothing that said what it has, if it is served just that.
	contentAfter = 10 * time.Second
)

// New returns a tracker that knows of no client.
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

// Regroup says that other groups may be for a node than before.
func (t *Tracker) Regroup() { t.epoch.Add(1) }

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
	r := &row{stream: st, about: adminapi.Stream{ID: st.ID, API: api, Variant: st.Variant.String(), Since: st.Since}}
	c, first := t.come(key, st, r, now)
	t.rows.Store(st, r)
	if first {
		t.ring.add(&record{kind: "connect", client: &c.about, stream: st.ID, at: now, text: strings.TrimSpace(api + " " + r.about.Variant + " " + c.agent)})
	}
	t.bell.ring()
}

// come adds a stream to its client, and reports whether it is the first.
func (t *Tracker) come(key clientKey, st *server.Stream, r *row, now int64) (_ *client, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[key]
	if c == nil {
		first = true
		key.node = strings.Clone(key.node) // what is kept longer must not keep the rest of a request
		c = &client{
			about: about{node: key.node, peer: key.peer}, key: key, since: st.Since.UnixNano(), cluster: clip(st.Node.Cluster, maxName),
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
		c.at = len(n.clients)
		n.clients = append(n.clients, c)
	}
	r.client = c
	c.streams = append(c.streams, r)
	t.prune(c, now)
	return c, first
}

// prune forgets streams of a client that have ended long ago.
func (t *Tracker) prune(c *client, now int64) {
	n := max(len(c.late)-maxLate, 0)
	for n < len(c.late) && now-c.late[n].ended > int64(lateFor) {
		n++
	}
	t.free(c.late[:n])
	if c.late = slices.Delete(c.late, 0, n); len(c.late) == 0 {
		c.late = nil
	}
}

// Closed implements [server.Observer].
func (t *Tracker) Closed(st *server.Stream, err error) {
	v, ok := t.rows.LoadAndDelete(st)
	if !ok {
		return
	}
	r, now := v.(*row), t.now()
	if left := t.leave(r, err, now); left != nil {
		t.ring.add(&record{kind: "leave", client: &r.client.about, stream: st.ID, at: now, text: left.text()})
	}
	t.bell.ring()
}

// close keeps what is to be known of a stream that has ended.
func (t *Tracker) close(r *row, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.stream = now, nil
	all := r.types
	r.types = slices.Clone(all[:min(len(all), maxKeptTypes)])
	for i := maxKeptTypes; i < len(all); i++ {
		t.forgive(&all[i])
	}
}

// free forgets streams that have ended, with the causes that they kept.
func (t *Tracker) free(rows []*row) {
	for _, r := range rows {
		r.mu.Lock()
		for i := range r.types {
			t.forgive(&r.types[i])
		}
		r.types = nil
		r.mu.Unlock()
	}
}

// leave takes a stream from its client, and returns the client if it was the last.
func (t *Tracker) leave(r *row, err error, now int64) *departed {
	code, why := reason(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close(r, now)
	c := r.client
	c.streams = slices.DeleteFunc(c.streams, func(o *row) bool { return o == r })
	c.late = append(c.late, r)
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
	d := &departed{client: c, rows: c.late, at: now, code: code, why: why}
	c.late, c.streams = nil, nil
	if len(t.left) < t.opts.Departed {
		t.left = append(t.left, d)
		return d
	}
	gone := t.left[t.oldest].node
	t.free(t.left[t.oldest].rows)
	if t.left[t.oldest] = d; t.oldest+1 < len(t.left) {
		t.oldest++
	} else {
		t.oldest = 0
	}
	if n := t.nodes[gone]; n != nil {
		if n.left--; n.left == 0 && len(n.clients) == 0 {
			delete(t.nodes, gone)
		}
	}
	return d
}

// reason is why a client has left.
func reason(err error) (codes.Code, string) {
	s := status.Convert(err)
	switch {
	case s.Message() == context.Canceled.Error(): // gRPC's words for what the other side did
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
	said := record{client: &r.client.about, stream: st.ID, typ: e.Type, version: e.Version, at: now}
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
		said.nonce = number(e.Nonce)
		r.mu.Lock()
		u := r.add(e.Type)
		if u.current && now-st.Since.UnixNano() >= int64(contentAfter) {
			t.well(r, u.typ, st.Since.UnixNano())
		}
		u.send(&e, said.nonce, now)
		r.mu.Unlock()
		said.kind, said.count, said.removed = "send", count(e.Count+e.Beats), count(e.Removed)
	case protocol.Acked:
		said.nonce, said.took = number(e.Nonce), e.Took
		m := t.acked(r, &e, said.nonce, now)
		said.kind, said.count, said.removed = "ack", m.count, m.removed
	case protocol.Nacked:
		said.nonce, said.took = number(e.Nonce), e.Took
		var m pending
		said.cause, m = t.nacked(r, st, &e, said.nonce, now)
		said.kind, said.count, said.removed = "nack", m.count, m.removed
	case protocol.Waived:
		said.kind, said.by, said.count, said.text = "wait", e.By, 1, clip(e.Name, maxName)
	default:
		return
	}
	t.ring.add(&said)
	if e.Kind != protocol.Sent {
		t.bell.ring()
	}
}

func (t *Tracker) subscribed(r *row, e *protocol.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(e.Type)
	u.names, u.wildcard = count(e.Count), e.Wildcard
	if !e.Refuses {
		if u.refusal != nil {
			t.well(r, u.typ, t.now())
		}
		t.forgive(u)
	}
}

func (t *Tracker) acked(r *row, e *protocol.Event, nonce uint64, now int64) pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(e.Type)
	m := u.answer(r.variant(), nonce)
	u.acked = message{at: now, nonce: nonce, version: e.Version, count: m.count, removed: m.removed}
	u.accepted = cmp.Or(u.accepted, now)
	if !e.Refuses {
		t.well(r, u.typ, now)
		t.forgive(u)
	}
	return m
}

func (t *Tracker) nacked(r *row, st *server.Stream, e *protocol.Event, nonce uint64, now int64) (*cause, pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.add(e.Type)
	m := u.answer(r.variant(), nonce)
	c, partly := causeOf(e, int(m.count+m.removed))
	if !e.Refuses { // it has taken later what it refuses now
		return c, m
	}
	if u.refusal == nil {
		t.begin(r, st, c, u.accepted != 0 || u.stated, now)
	}
	since := now
	if u.refusal != nil {
		since = u.refusal.since
	}
	t.forgive(u)
	c = t.causes.take(c)
	u.refusal = &refusal{cause: c, since: since, at: now, nonce: nonce, version: e.Version, partly: partly}
	return c, m
}

// Forgive says that a stream's client refuses nothing of a type any more, though it has answered nothing.
// It is called by the stream's goroutine.
func (t *Tracker) Forgive(st *server.Stream, typ *xds.Type) {
	v, ok := t.rows.Load(st)
	if !ok {
		return
	}
	r := v.(*row)
	r.mu.Lock()
	if u := r.find(typ); u != nil {
		t.well(r, u.typ, t.now())
		t.forgive(u)
	}
	r.mu.Unlock()
	t.bell.ring()
}

// forgive notes that the client refuses nothing of the type any more.
func (t *Tracker) forgive(u *typeRow) {
	if u.refusal != nil {
		t.causes.drop(u.refusal.cause)
		u.refusal = nil
	}
}

func (r *row) variant() xds.Variant {
	if r.stream == nil {
		return xds.SotW
	}
	return r.stream.Variant
}

// clip cuts a text that is kept, and keeps none of the rest.
func clip(s string, n int) string {
	return strings.Clone(strings.ToValidUTF8(text.Head(s, n), "\uFFFD"))
}

// host is the address of a peer without its port.
func host(peer string) string {
	if h, _, err := net.SplitHostPort(peer); err == nil {
		return h
	}
	return peer
}
