package client

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Options configures a client. The zero value is ready to use.
type Options struct {
	// The client sends Node with the first request of each stream: "Only the first request on a
	// stream is guaranteed to carry the node identifier."
	Node *xds.Node

	// Legacy changes the first request if "*" is the only subscription of a type with an implicit
	// wildcard ([xds.Type.Implicit]). The client then sends an empty list of names, which every
	// server understands.
	Legacy bool

	// Check returns the reason why a resource cannot be used, or nil. The text of the error becomes
	// the text of the NACK. Without Check, all resources are accepted. A panic counts as an error.
	// The client calls Check only for wanted resources that differ from the resource held.
	Check func(*xds.Resource) error

	// Timeout is how long the server may take to send a requested name: "If a client requests a
	// resource, it should wait for 15 seconds before deciding that it does not exist" (CLI-3).
	// Zero: 15 s, or 30 s if Transient; negative: for ever. A wildcard has no timeout.
	Timeout time.Duration

	// Transient treats a resource that did not arrive in time as unavailable, not as missing (gRFC
	// A88, resource_timer_is_transient_error).
	Transient bool

	// Retain keeps a resource that the server removes (gRFC A53, ignore_resource_deletion).
	Retain bool

	// DropOnError drops a resource whose newest state is refused, removed, or reported as NOT_FOUND
	// or PERMISSION_DENIED (gRFC A88, fail_on_data_errors). It overrides Retain.
	DropOnError bool

	// Budget limits the memory of the resources that the client holds. A response that would exceed it
	// is refused: none of its resources is used, and its removals count. Nil: no limit.
	Budget *Budget
}

// A Client is the client side of the protocol across streams. Subscriptions and resources survive a
// reconnect, nonces do not. Like [Session], a Client is pure: subscriptions, responses and time are
// inputs, requests and events are outputs. A Client is not safe for concurrent use; one goroutine
// owns it.
//
// A subscribed name finds a resource if it is the name of the resource or "*". With delta, an alias
// and the collection of the resource find it, too.
//
// After each call, the owner drains [Client.Events]. Before the next call of [Client.Receive], the
// owner also drains [Client.Requests], which has the ACK or NACK of the last response. Terms: see
// doc.go.
type Client struct {
	variant xds.Variant
	opts    Options
	types   []*typeState // in push order, which is the order of requests
	all     bool         // an aggregated stream is connected
	greeted bool         // the node was sent on this stream
	now     time.Time
	timers  timers
	events  []Event
}

// A typeState has the subscriptions and resources of one type.
type typeState struct {
	typ   *xds.Type
	delta bool // names also match by alias and collection

	names   map[string]*nameState      // asked, told, held, or refused: see nameState
	all     *nameState                 // names["*"]; nil: none
	asks    int                        // number of names with asked set
	changed map[string]bool            // names whose asked and told differ
	found   map[string]map[string]bool // delta: by alias or collection, the names of the held resources that match
	spoiled map[string]map[string]bool // delta: the same for refused resources; the inverse of fault.by
	list    []string                   // the asked names, sorted; nil: not computed
	strays  int                        // number of names that are kept only because a resource was refused
	round   uint64                     // number of the last response; see nameState.round

	// SotW: the names of the last response in the order of the response (nil for unknown names),
	// followed by other names. Most names are in the same place in the next response.
	rows   []*nameState
	listed bool // rows has all names that the next full state may lack: see nameState.shows

	// State of the current stream.
	streams  bool   // the type has a stream of its own
	greeted  bool   // the node was sent on this stream
	opened   bool   // a request was sent
	nameless bool   // no request has listed a name, so "*" is implied
	steady   bool   // told is unchanged since the first request
	nonce    string // nonce of the newest response
	verdicts []verdict

	version string // the last accepted version_info; SotW only
	exact   bool   // the client holds all resources of this version, for the told names
}

// A verdict is an ACK or NACK that is still to be sent.
type verdict struct {
	nonce, version string
	status         *xds.Status // nil: ACK
}

// New returns a client without subscriptions and without a stream.
func New(v xds.Variant, opts Options) *Client {
	if opts.Timeout == 0 {
		opts.Timeout = 15 * time.Second
		if opts.Transient {
			opts.Timeout *= 2
		}
	}
	return &Client{variant: v, opts: opts}
}

// find returns the state of a type, or nil. A response does not create a state, because a server
// could send any number of types.
func (c *Client) find(t *xds.Type) *typeState {
	for _, w := range c.types {
		if w.typ.Is(t) {
			return w
		}
	}
	return nil
}

func (c *Client) of(t *xds.Type) *typeState {
	if w := c.find(t); w != nil {
		return w
	}
	w := &typeState{typ: t, delta: c.variant == xds.Delta, names: map[string]*nameState{}, changed: map[string]bool{}, found: map[string]map[string]bool{}, spoiled: map[string]map[string]bool{}}
	c.types = append(c.types, w)
	slices.SortStableFunc(c.types, func(a, b *typeState) int {
		return cmp.Or(cmp.Compare(a.typ.Rank(), b.typ.Rank()), strings.Compare(a.typ.URL, b.typ.URL))
	})
	return w
}

// Subscribe adds names; [xds.Wildcard] is allowed. If the client has already refused the resource
// with one of these names, the new subscription gets a Refused event, too.
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

// Unsubscribe removes names. The client accepts and holds the resources of these names until
// [Client.Requests] has yielded the request without them.
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

// turn records that the field asked of a name has changed.
func (w *typeState) turn(name string, n *nameState) {
	w.list = nil
	if n.asked != n.told {
		w.changed[name] = true
	} else {
		delete(w.changed, name)
	}
}

// Connected tells the client that a new stream has begun: for one type, or for all types if only is
// nil. "The nonce is valid only in the context of an individual xDS stream; it does not survive
// stream restarts."
func (c *Client) Connected(only *xds.Type) {
	c.Disconnected(only)
	if only == nil {
		c.all = true
	} else {
		c.of(only).streams = true
	}
}

// Disconnected tells the client that the stream of one type has ended, or that all streams have
// ended if only is nil. The client keeps its resources. Without a stream, missing names have no
// timeout, but TTLs continue.
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

// drop forgets a name that is no longer asked. It is called if no request about the name is needed,
// because the server does not know the name or has no stream.
func (c *Client) drop(w *typeState, name string, n *nameState) {
	w.exact = w.exact && !n.told // the version also covers this name
	w.tell(name, n)
	c.shed(w, name)
}
