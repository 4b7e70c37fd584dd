package protocol

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// ClientOptions of a client. The zero value is ready to use.
type ClientOptions struct {
	// Node goes with the first request of each stream: "Only the first request
	// on a stream is guaranteed to carry the node identifier."
	Node *xds.Node

	// Legacy spells a first subscription to "*" alone as an empty list, which
	// every server understands, for the types whose row says [xds.Type.Implicit].
	Legacy bool

	// Check says why a resource cannot be used, which is what the NACK says. Nil: all
	// can. A panic of it is an error of the resource. It is asked only about resources
	// that are wanted and differ from what is held.
	Check func(*xds.Resource) error

	// Timeout is how long the server has to send what it was asked for: "If a client
	// requests a resource, it should wait for 15 seconds before deciding that it does not
	// exist". Zero: 15 s, or 30 s if Transient; negative: for ever. No wildcard waits.
	Timeout time.Duration

	// Transient takes what did not come in time for unavailable, and not for absent
	// (gRFC A88, resource_timer_is_transient_error).
	Transient bool

	// Retain keeps a resource that the server removes (gRFC A53, ignore_resource_deletion).
	Retain bool

	// DropOnError gives up a resource whose newest state is refused, removed, or reported
	// as NOT_FOUND or PERMISSION_DENIED (gRFC A88, fail_on_data_errors). It wins over Retain.
	DropOnError bool
}

// A Client is the client half of the protocol across streams: what it wants
// and what it holds survive a reconnect, nonces do not. It is pure, like
// [Session]: subscriptions, responses and time go in, requests and events come
// out. It is not safe for concurrent use; one goroutine owns it.
//
// After each call, whoever owns it drains [Client.Events], and [Client.Requests]
// before the next [Client.Receive]: a verdict waits there for each response.
type Client struct {
	variant xds.Variant
	opts    ClientOptions
	types   []*clientType // in push order, which is the order of requests
	all     bool          // an aggregated stream is there
	greeted bool          // which has carried the node
	now     time.Time
	timers  clientTimers
	events  []ClientEvent
}

// A clientType is what the client wants and holds of one type.
type clientType struct {
	typ   *xds.Type
	delta bool // names find by aliases and collections, too

	names   map[string]*clientName     // asked, told, held, or refused: see clientName
	all     *clientName                // names["*"]; nil: there is none
	asks    int                        // how many are asked
	changed map[string]bool            // names of which asked and told differ
	found   map[string]map[string]bool // delta: which resources held a name finds besides its own
	spoiled map[string]map[string]bool // delta: which refused ones; the inverse of fault.by
	list    []string                   // names asked, sorted; nil: to be made anew
	strays  int                        // how many names are here only because they were refused
	round   uint64                     // of the last response; see clientName.round

	// SotW: the names of the last response in its order, nil for what is unknown, and behind
	// them others. The next response has mostly the same at the same place.
	rows   []*clientName
	listed bool // rows has all that can be missing in a full state: see clientName.shows

	// Of this stream.
	streams  bool   // it has one of its own
	greeted  bool   // which has carried the node
	opened   bool   // a request was sent
	nameless bool   // no request named anything: "*" is implied
	steady   bool   // told is what the first request said
	nonce    string // of the newest response
	verdicts []verdict

	version string // last accepted; SotW only
	exact   bool   // what is held is all that version means for told
}

// A verdict on a response is due to the server.
type verdict struct {
	nonce, version string
	status         *xds.Status // nil: ACK
}

// NewClient returns a client without subscriptions and without a stream.
func NewClient(v xds.Variant, opts ClientOptions) *Client {
	if opts.Timeout == 0 {
		opts.Timeout = 15 * time.Second
		if opts.Transient {
			opts.Timeout *= 2
		}
	}
	return &Client{variant: v, opts: opts}
}

// find returns what there is of a type, or nil. A response makes none: the server could name
// types without end.
func (c *Client) find(t *xds.Type) *clientType {
	for _, w := range c.types {
		if w.typ.Is(t) {
			return w
		}
	}
	return nil
}

func (c *Client) of(t *xds.Type) *clientType {
	if w := c.find(t); w != nil {
		return w
	}
	w := &clientType{typ: t, delta: c.variant == xds.Delta, names: map[string]*clientName{}, changed: map[string]bool{}, found: map[string]map[string]bool{}, spoiled: map[string]map[string]bool{}}
	c.types = append(c.types, w)
	slices.SortStableFunc(c.types, func(a, b *clientType) int {
		return cmp.Or(cmp.Compare(a.typ.Rank(), b.typ.Rank()), strings.Compare(a.typ.URL, b.typ.URL))
	})
	return w
}

// Subscribe adds names, one of which may be [xds.Wildcard]. Who asks for what others know to be
// refused is told so.
func (c *Client) Subscribe(t *xds.Type, names ...string) {
	w := c.of(t)
	for _, name := range names {
		name = xds.CanonicalName(name)
		if n := w.name(name); !n.asked {
			n.asked = true
			w.asks++
			w.turn(name, n)
			w.tidy(name, n)
			c.inform(w, name, n)
		}
	}
}

// Unsubscribe drops names. While the server counts on it, the client goes on accepting and
// holding them: until [Client.Requests] has told it.
func (c *Client) Unsubscribe(t *xds.Type, names ...string) {
	w := c.find(t)
	if w == nil {
		return
	}
	for _, name := range names {
		name = xds.CanonicalName(name)
		n := w.names[name]
		if n == nil || !n.asked {
			continue
		}
		n.asked = false
		w.asks--
		w.turn(name, n)
		if !w.opened || !n.told {
			c.drop(w, name, n)
		}
	}
}

// turn notes that a name is asked now, or no more.
func (w *clientType) turn(name string, n *clientName) {
	w.list = nil
	if n.asked != n.told {
		w.changed[name] = true
	} else {
		delete(w.changed, name)
	}
}

// Connected tells that a new stream has begun: of one type, or of all if only is nil. "The
// nonce is valid only in the context of an individual xDS stream; it does not survive stream
// restarts."
func (c *Client) Connected(only *xds.Type) {
	c.Disconnected(only)
	if only == nil {
		c.all = true
	} else {
		c.of(only).streams = true
	}
}

// Disconnected tells that a stream has ended, of one type or, with nil, all streams. What is
// held stays. Nobody is asked for what is missing, so no timer of absence runs; TTLs run on.
func (c *Client) Disconnected(only *xds.Type) {
	if only == nil {
		c.all, c.greeted = false, false
	}
	for _, w := range c.types {
		if only != nil && !w.typ.Is(only) {
			continue
		}
		w.streams, w.greeted, w.opened, w.nonce, w.verdicts = false, false, false, "", nil
		for name, n := range w.names {
			if n.res == nil {
				c.stop(n)
			}
			if !n.asked && n.told {
				c.drop(w, name, n)
			}
		}
	}
}

// drop lets go of a name that is not asked any more, when nobody is there to be told.
func (c *Client) drop(w *clientType, name string, n *clientName) {
	w.exact = w.exact && !n.told // what the version means was more
	w.tell(name, n)
	c.shed(w, name)
}
