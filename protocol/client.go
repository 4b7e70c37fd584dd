package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

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
}

// A Client is the client half of the protocol across streams: what it wants
// and what it holds survive a reconnect, nonces do not. It is pure, like
// [Session]: subscriptions and responses go in, requests come out. It is not
// safe for concurrent use; one goroutine owns it.
type Client struct {
	variant xds.Variant
	opts    ClientOptions
	types   []*clientType // in push order, which is the order of requests
	greeted bool          // this stream has carried the node
}

// A clientType is what the client wants and holds of one type.
type clientType struct {
	typ     *xds.Type
	aliased bool // names find by aliases, too: delta only

	names map[string]bool // wanted; may contain "*"
	told  map[string]bool // what the server was last told is wanted
	cache map[string]*xds.Resource

	// Of this stream.
	opened   bool   // a request was sent
	nameless bool   // no request named anything: "*" is implied
	steady   bool   // told is what the first request said
	nonce    string // of the newest response
	verdicts []verdict

	version string // last accepted; SotW only
	exact   bool   // cache is all that version means for told
}

// A verdict on a response is due to the server.
type verdict struct {
	nonce, version string
	status         *xds.Status // nil: ACK
}

// NewClient returns a client without subscriptions and without a stream.
func NewClient(v xds.Variant, opts ClientOptions) *Client {
	return &Client{variant: v, opts: opts}
}

func (c *Client) of(t *xds.Type) *clientType {
	for _, w := range c.types {
		if w.typ.Is(t) {
			return w
		}
	}
	w := &clientType{typ: t, aliased: c.variant == xds.Delta, names: map[string]bool{}, cache: map[string]*xds.Resource{}}
	c.types = append(c.types, w)
	slices.SortStableFunc(c.types, func(a, b *clientType) int {
		return cmp.Or(cmp.Compare(a.typ.Rank(), b.typ.Rank()), strings.Compare(a.typ.URL, b.typ.URL))
	})
	return w
}

// Subscribe adds names, one of which may be [xds.Wildcard].
func (c *Client) Subscribe(t *xds.Type, names ...string) {
	w := c.of(t)
	for _, n := range names {
		w.names[n] = true
	}
}

// Unsubscribe drops names. The client goes on accepting and holding them until
// [Client.Requests] has told the server, which until then counts on it.
func (c *Client) Unsubscribe(t *xds.Type, names ...string) {
	w := c.of(t)
	for _, n := range names {
		delete(w.names, n)
	}
}

// Connected tells that a new stream has begun. "The nonce is valid only in the
// context of an individual xDS stream; it does not survive stream restarts."
func (c *Client) Connected() {
	c.greeted = false
	for _, w := range c.types {
		w.opened, w.nonce, w.verdicts = false, "", nil
	}
}

// Receive applies a response and makes its ACK or NACK due. It uses the
// resources to which check has no objection, also those of a response with
// others, and returns the objections, which are what the NACK says. A nil check
// accepts everything.
func (c *Client) Receive(resp *xds.Response, check func(*xds.Resource) error) error {
	w := c.of(resp.Type)
	if !w.opened {
		return nil // asked for by nobody, so there is no request to answer it with
	}
	err := w.apply(resp, check, c.variant)
	v := verdict{nonce: resp.Nonce}
	if err != nil {
		v.status = &xds.Status{Code: 3, Message: err.Error()} // INVALID_ARGUMENT
		w.exact = false
	} else {
		w.version, w.exact = resp.Version, w.steady
	}
	// "The version_info indicates the most recent version that the client is using."
	v.version = w.version
	w.nonce, w.verdicts = resp.Nonce, append(w.verdicts, v)
	return err
}

func (w *clientType) apply(resp *xds.Response, check func(*xds.Resource) error, v xds.Variant) error {
	// "Clients should NACK responses that contain multiple instances of the
	// same resource name." Nobody can say which is meant: none is used.
	changes := resp.Changes
	if changes == nil {
		changes = &xds.Changes{}
	}
	seen := map[string]bool{}
	for _, r := range changes.Upserts {
		if seen[r.Name] {
			return fmt.Errorf("duplicate resource %q", r.Name)
		}
		seen[r.Name] = true
	}
	for _, n := range changes.Removed {
		if seen[n] {
			return fmt.Errorf("resource %q is both present and removed", n)
		}
	}
	var errs []error
	for _, r := range changes.Upserts {
		// "The client will silently ignore any supplied resources that were
		// not explicitly requested." A resource without a body only says that
		// the one held is still good.
		if r.Body == nil || !w.covers(w.told, r) {
			continue
		}
		if check != nil {
			if err := check(r); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
				continue
			}
		}
		w.cache[r.Name] = r
	}
	for _, n := range changes.Removed {
		delete(w.cache, n)
	}
	if v == xds.SotW && w.typ.FullState {
		// "If a previously seen resource is not present in a new response,
		// that indicates that the resource has been removed."
		maps.DeleteFunc(w.cache, func(n string, _ *xds.Resource) bool { return !seen[n] })
	}
	return errors.Join(errs...)
}

// Expire drops a resource whose TTL has ended without a heartbeat: "If the TTL
// expires without the resource having been refreshed, the resource is removed."
func (c *Client) Expire(t *xds.Type, name string) {
	w := c.of(t)
	delete(w.cache, name)
	w.exact = false
}

// Requests yields the requests that are due, in push order of their types.
func (c *Client) Requests() iter.Seq[xds.Request] {
	return func(yield func(xds.Request) bool) {
		for _, w := range c.types {
			for w.due() {
				req := xds.Request{Type: w.typ}
				if !c.greeted {
					req.Node, c.greeted = c.opts.Node, true
				}
				if c.variant == xds.SotW {
					w.sotw(&req, c.opts.Legacy)
				} else {
					w.delta(&req, c.opts.Legacy)
				}
				if !yield(req) {
					return
				}
			}
		}
	}
}

// due reports whether the server is to be told something. An empty first
// request would mean "*" and is never made to mean nothing.
func (w *clientType) due() bool {
	if !w.opened {
		if len(w.names) == 0 {
			w.tell(w.names) // nobody is there to be told
			return false
		}
		return true
	}
	return len(w.verdicts) > 0 || !maps.Equal(w.names, w.told)
}

// tell notes what the server knows from now on, and forgets what it was told
// that the client does not want.
func (w *clientType) tell(names map[string]bool) {
	w.told = maps.Clone(names)
	maps.DeleteFunc(w.cache, func(_ string, r *xds.Resource) bool { return !w.covers(names, r) })
}

// open prepares the first request on a stream. It reports whether "*" is to be
// implied by an empty list.
func (w *clientType) open(legacy bool) bool {
	// Whoever states a version is not sent what it has, so a client that has
	// since changed its mind, or holds but a part, states none.
	if !w.exact || !maps.Equal(w.names, w.told) {
		w.version, w.exact = "", false
	}
	w.opened, w.steady = true, true
	w.nameless = legacy && w.typ.Implicit && len(w.names) == 1 && w.names[xds.Wildcard]
	return w.nameless
}

// sotw fills in a DiscoveryRequest. "All subsequent requests from the client
// must set the response_nonce field to the most recent nonce received from the
// server on that stream"; responses that came back to back are each answered
// with their own.
func (w *clientType) sotw(req *xds.Request, legacy bool) {
	first := !w.opened
	if first {
		w.open(legacy)
	} else if !maps.Equal(w.names, w.told) {
		w.steady, w.exact = false, false
	}
	names := w.names
	if w.nameless && len(names) == 0 {
		// An empty list still implies "*". Naming it ends that, and then an
		// empty list means nothing at all.
		names = map[string]bool{xds.Wildcard: true}
		w.nameless = false
		w.fill(req, names)
		w.told = map[string]bool{xds.Wildcard: true, "": true} // differs: the empty list is still due
		return
	}
	if w.nameless = w.nameless && len(names) == 1 && names[xds.Wildcard]; w.nameless {
		names = nil
	}
	w.fill(req, names)
	w.tell(w.names)
}

func (w *clientType) fill(req *xds.Request, names map[string]bool) {
	req.Nonce, req.Version, req.Names = w.nonce, w.version, slices.Sorted(maps.Keys(names))
	if len(w.verdicts) > 0 {
		v := w.verdicts[0]
		w.verdicts = w.verdicts[1:]
		req.Nonce, req.Version, req.Error = v.nonce, v.version, v.status
	}
}

// delta fills in a DeltaDiscoveryRequest. It has a nonce only if it answers a
// response: "The nonce field is required and used to pair a
// DeltaDiscoveryResponse to a DeltaDiscoveryRequest ACK or NACK."
func (w *clientType) delta(req *xds.Request, legacy bool) {
	told := w.told
	if !w.opened {
		told = nil
		if w.open(legacy) {
			told = w.names
		}
		w.tell(w.names)
		for _, n := range slices.Sorted(maps.Keys(w.cache)) {
			req.Initial = append(req.Initial, xds.Version{Name: n, Version: w.cache[n].Version})
		}
	}
	req.Subscribe, req.Unsubscribe = without(w.names, told), without(told, w.names)
	w.tell(w.names)
	if len(w.verdicts) > 0 {
		v := w.verdicts[0]
		w.verdicts = w.verdicts[1:]
		req.Nonce, req.Error = v.nonce, v.status
	}
}

// Wants returns the names subscribed to, sorted.
func (c *Client) Wants(t *xds.Type) []string { return slices.Sorted(maps.Keys(c.of(t).names)) }

// Held yields the resources in the cache, in no particular order.
func (c *Client) Held(t *xds.Type) iter.Seq[*xds.Resource] { return maps.Values(c.of(t).cache) }

// Version returns the last version_info that was accepted and still holds;
// SotW only.
func (c *Client) Version(t *xds.Type) string { return c.of(t).version }

// covers reports whether a subscription to names is one to the resource.
func (w *clientType) covers(names map[string]bool, r *xds.Resource) bool {
	return names[xds.Wildcard] || names[r.Name] || w.aliased && slices.ContainsFunc(r.Aliases, func(a string) bool { return names[a] })
}

// without lists the names of a that b lacks, sorted.
func without(a, b map[string]bool) (out []string) {
	for n := range a {
		if !b[n] {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
