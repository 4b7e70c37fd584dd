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
// reconnect, nonces do not. A Client is pure: subscriptions, responses and time are
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
	variant    xds.Variant
	opts       Options
	types      []*typeState // in push order (ADS-2), which is the order of requests
	aggregated bool         // an aggregated stream is connected
	nodeSent   bool         // the node was sent on this stream
	now        time.Time
	timers     timers
	events     []Event
}

// A typeState has the subscriptions and resources of one type.
type typeState struct {
	client *Client
	typ    *xds.Type
	delta  bool // the variant; with delta, names also match by alias and collection (CLI-12)

	names         map[string]*nameState // subscribed, requested, held, or refused: see nameState
	wildcard      *nameState            // names["*"]; nil: none
	subscriptions int                   // number of subscribed names
	unsent        map[string]bool       // names whose subscribed and requested differ: the next request has them
	held          matches               // delta: by alias or collection, the names of the held resources that match
	refused       matches               // delta: the same for refused resources; the inverse of fault.subscribers
	sorted        []string              // the subscribed names, for requests; nil: not computed
	onlyRefused   int                   // number of names with onlyRefused set, at most maxOnlyRefused
	round         uint64                // number of the last response; see nameState.round

	// SotW: the names of the last response in the order of the response (nil for unknown names),
	// followed by other names. Most names are in the same place in the next response.
	rows         []*nameState
	rowsComplete bool // rows has all names that the next full state may lack: see nameState.hasResource

	// State of the current stream.
	ownStream        bool     // the type has a stream of its own
	nodeSent         bool     // the node was sent on this stream
	opened           bool     // a request was sent
	implicitWildcard bool     // no request has listed a name, so "*" is implied
	namesUnchanged   bool     // all requests of the stream have the same names
	nonce            string   // nonce of the newest response
	answers          []answer // ACKs and NACKs that are due, in the order of the responses

	version  string // the last accepted version_info; SotW only
	complete bool   // the client holds all resources of this version, for the requested names
}

// An answer is an ACK or NACK that is still to be sent (CLI-2).
type answer struct {
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

// findType returns the state of a type, or nil. A response does not create a state, because a server
// could send any number of types.
func (c *Client) findType(t *xds.Type) *typeState {
	for _, ts := range c.types {
		if ts.typ.Is(t) {
			return ts
		}
	}
	return nil
}

// ensureType returns the state of a type, and creates it if needed.
func (c *Client) ensureType(t *xds.Type) *typeState {
	ts := c.findType(t)
	if ts != nil {
		return ts
	}
	ts = &typeState{client: c, typ: t, delta: c.variant == xds.Delta, names: map[string]*nameState{}, unsent: map[string]bool{}, held: matches{}, refused: matches{}}
	c.types = append(c.types, ts)
	slices.SortStableFunc(c.types, comparePushOrder)
	return ts
}

// comparePushOrder compares two types by push order. Types that the order does not list are last.
func comparePushOrder(a, b *typeState) int {
	return cmp.Or(cmp.Compare(a.typ.Rank(), b.typ.Rank()), strings.Compare(a.typ.URL, b.typ.URL))
}

// Subscribe adds names; [xds.Wildcard] is allowed. If the client has already refused the resource
// with one of these names, the new subscription gets a Refused event, too.
func (c *Client) Subscribe(t *xds.Type, names ...string) {
	ts := c.ensureType(t)
	for _, name := range names {
		name = xds.CanonicalName(name)
		n := ts.ensure(name)
		if n.subscribed {
			continue
		}
		n.subscribed = true
		ts.subscriptions++
		ts.subscriptionChanged(name, n)
		ts.forgetUnused(name, n)
		ts.reportKnownFault(name, n)
	}
}

// Unsubscribe removes names. The client accepts and holds the resources of these names until
// [Client.Requests] has yielded the request without them.
func (c *Client) Unsubscribe(t *xds.Type, names ...string) {
	ts := c.findType(t)
	if ts == nil {
		return
	}
	for _, name := range names {
		name = xds.CanonicalName(name)
		n := ts.names[name]
		if n == nil || !n.subscribed {
			continue
		}
		n.subscribed = false
		ts.subscriptions--
		ts.subscriptionChanged(name, n)
		if !ts.opened || !n.requested {
			ts.dropSubscription(name, n)
		}
	}
}

// subscriptionChanged records that the field subscribed of a name has changed.
func (ts *typeState) subscriptionChanged(name string, n *nameState) {
	ts.sorted = nil
	if n.subscribed != n.requested {
		ts.unsent[name] = true
	} else {
		delete(ts.unsent, name)
	}
}

// Connected tells the client that a new stream has begun: for one type, or for all types if only is
// nil. "The nonce is valid only in the context of an individual xDS stream; it does not survive
// stream restarts."
func (c *Client) Connected(only *xds.Type) {
	c.Disconnected(only)
	if only == nil {
		c.aggregated = true
	} else {
		c.ensureType(only).ownStream = true
	}
}

// Disconnected tells the client that the stream of one type has ended, or that all streams have
// ended if only is nil. The client keeps its resources. Without a stream, missing names have no
// timeout, but TTLs continue.
func (c *Client) Disconnected(only *xds.Type) {
	if only == nil {
		c.aggregated, c.nodeSent = false, false
	}
	for _, ts := range c.types {
		if only != nil && !ts.typ.Is(only) {
			continue
		}
		ts.disconnected()
	}
}

func (ts *typeState) disconnected() {
	ts.ownStream, ts.nodeSent, ts.opened, ts.nonce, ts.answers = false, false, false, "", nil
	for name, n := range ts.names {
		if n.res == nil {
			ts.stopTimer(n)
		}
		if !n.subscribed && n.requested {
			ts.dropSubscription(name, n)
		}
	}
}

// dropSubscription forgets a name that is no longer subscribed. It is called if no request about the
// name is needed, because the server does not know the name or has no stream.
func (ts *typeState) dropSubscription(name string, n *nameState) {
	ts.complete = ts.complete && !n.requested // the version also covers this name
	ts.markRequested(name, n)
	ts.dropUnwanted(name)
}
