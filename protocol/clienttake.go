package protocol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Receive applies a response and makes its ACK or NACK due. It uses the resources that are good,
// also those of a response with others, and returns what is wrong with the others, which is what
// the NACK says: it names all of them, as far as [maxComplaint] bytes go.
//
// A response of a type that was not asked for on the stream, or of none, changes nothing: there
// is no request to answer it with.
func (c *Client) Receive(resp *xds.Response) error {
	w := c.find(resp.Type)
	if w == nil || !w.opened {
		return nil
	}
	err := c.apply(w, resp)
	v := verdict{nonce: resp.Nonce}
	if err != nil {
		v.status = &xds.Status{Code: 3, Message: err.Error()}  // INVALID_ARGUMENT
		w.exact, w.steady = false, w.steady && w.typ.FullState // others may be sent no more on this stream
	} else {
		// A heartbeat is no state, and what has the version of before may be a part: what was
		// refused, was given up, or never came is missing still.
		again := w.version == resp.Version
		w.exact = w.steady && (again && w.exact || !beats(resp) && (!again || w.typ.FullState))
		w.version = resp.Version
		if c.opts.DropOnError && (len(resp.Errors) > 0 || resp.Changes != nil && len(resp.Missing) > 0) {
			w.exact = false // something was given up
		}
	}
	// "The version_info indicates the most recent version that the client is using."
	v.version = w.version
	w.nonce, w.verdicts = resp.Nonce, append(w.verdicts, v)
	return err
}

// beats reports whether a response only keeps alive what is held.
func beats(r *xds.Response) bool {
	return r.Changes != nil && len(r.Beats) > 0 && len(r.Upserts) == 0
}

// An intake is one response on its way in.
type intake struct {
	*Client
	w       *clientType
	version string
	wrong   complaint
	fresh   map[string]uint64 // how often it has names that were not known before
	rows    []*clientName     // becomes clientType.rows
	at      int               // the place in that where the next resource should be
}

func (c *Client) apply(w *clientType, resp *xds.Response) error {
	w.round += seenTold
	in := &intake{Client: c, w: w, version: resp.Version}
	changes := resp.Changes
	if changes == nil {
		changes = &xds.Changes{}
	}
	in.count(changes)
	for i, r := range changes.Upserts {
		in.take(i, r)
	}
	for _, r := range changes.Beats {
		in.beat(r)
	}
	for _, names := range [][]string{changes.Removed, changes.Absent} {
		for _, name := range names {
			name = xds.CanonicalName(name)
			if in.seen(name) == seenNever {
				in.see(name, seenOnce) // it may be there many times
				c.remove(w, name, nil)
			}
		}
	}
	for _, e := range resp.Errors {
		if n := w.names[xds.CanonicalName(e.Name)]; n != nil && n.round < w.round {
			n.round = w.round // that there is an error is not that it is gone
		}
	}
	for _, err := range resp.Malformed {
		in.wrong.add("", err)
		in.unread(err)
	}
	// A response that only keeps alive has no state. And any name that is missing may be that
	// of a resource which cannot be read.
	full := c.variant == xds.SotW && w.typ.FullState && len(resp.Malformed) == 0 && !beats(resp)
	if full {
		in.sweep()
	}
	if c.variant == xds.SotW && !beats(resp) {
		// What stays though it is said in another way is in no row.
		w.rows, w.listed = in.rows, full && len(changes.Beats)+len(changes.Removed)+len(changes.Absent)+len(resp.Errors) == 0
	} else if len(resp.Malformed) > 0 {
		w.listed = false
	}
	for _, name := range changes.Missing {
		c.missing(w, xds.CanonicalName(name))
	}
	for _, e := range resp.Errors {
		c.report(w, e)
	}
	return in.wrong.err()
}

// How often a response has a name.
const (
	seenNever = iota
	seenOnce
	seenTwice
	seenClash // and says that it is removed
	seenTold  // it has it in a way that was already told to be wrong
)

// seen returns how often the response has a name.
func (in *intake) seen(name string) uint64 {
	if times, has := in.fresh[name]; has {
		return times
	}
	if n := in.w.names[name]; n != nil {
		return in.times(n)
	}
	return seenNever
}

// times is seen of a name that was known before.
func (in *intake) times(n *clientName) uint64 {
	if n.round < in.w.round {
		return seenNever
	}
	return n.round - in.w.round + seenOnce
}

func (in *intake) see(name string, times uint64) {
	if _, has := in.fresh[name]; !has {
		n := in.w.names[name]
		if n != nil {
			n.round = in.w.round + times - seenOnce
		}
		if n != nil && times != seenTold { // else it may be forgotten before it comes again
			return
		}
		if in.fresh == nil {
			in.fresh = map[string]uint64{}
		}
	}
	in.fresh[name] = times
}

// find returns what is known of a resource's name, nil if nothing is. To look at the place where
// it should be costs less than to look for its name.
func (in *intake) find(r *xds.Resource) (n *clientName) {
	if rows := in.w.rows; in.at < len(rows) && rows[in.at].holds(r) {
		in.at++
		return rows[in.at-1]
	}
	n = in.w.names[xds.CanonicalName(r.Name)]
	if n != nil {
		in.at = int(n.place) + 1 // others went or came before it
	}
	return n
}

// count finds names that come twice, or are present and removed.
func (in *intake) count(c *xds.Changes) {
	in.rows = make([]*clientName, len(c.Upserts))
	for i, r := range c.Upserts {
		if r == nil || r.Stamp == nil {
			continue
		}
		if n := in.find(r); n != nil {
			in.rows[i] = n
			n.round = in.w.round + min(in.times(n)+1, seenTwice) - seenOnce
			continue
		}
		name := xds.CanonicalName(r.Name)
		in.see(name, min(in.seen(name)+1, seenTwice))
	}
	for _, name := range c.Removed {
		name = xds.CanonicalName(name)
		if in.seen(name) != seenNever {
			in.see(name, seenClash)
		}
	}
}

var (
	errNameless = errors.New("it has no name")
	errWildcard = errors.New(`no resource is called "*"`)
	// "Clients should NACK responses that contain multiple instances of the same resource
	// name." Nobody can say which is meant: none is used.
	errTwice = errors.New("duplicate resource")
	errClash = errors.New("it is both present and removed")
)

// take uses a resource, or says why it does not.
func (in *intake) take(i int, r *xds.Resource) {
	switch {
	case r == nil || r.Stamp == nil || r.Name == "":
		in.wrong.add(fmt.Sprintf("resource %d", i), errNameless)
		return
	case r.Name == xds.Wildcard:
		in.wrong.add(fmt.Sprintf("resource %d", i), errWildcard)
		return
	}
	w, name := in.w, xds.CanonicalName(r.Name)
	n, times := in.row(i, name)
	if times == seenTold {
		return
	}
	// "The client will silently ignore any supplied resources that were not explicitly
	// requested."
	asked := w.all != nil && w.all.told || n != nil && n.told || w.covers(name, r, isTold, "")
	var err error
	switch {
	case r.Type != nil && !r.Type.Is(w.typ):
		err = fmt.Errorf("its type is %s", cut(r.Type.URL, maxName))
	case times == seenTwice:
		err = errTwice
	case times == seenClash:
		err = errClash
	case !asked:
		if n != nil && n.res != nil {
			in.lose(w, name, n, nil) // what was asked for does not find it any more
		}
		return
	case r.Body == nil:
		in.beat(r)
		return
	default:
		err = in.check(n, r)
	}
	if err != nil {
		in.see(name, seenTold)
		in.wrong.add(r.Name, err)
		if asked {
			in.refuse(w, name, r, err)
			in.put(i, w.names[name])
		}
		return
	}
	if n == nil {
		n = w.name(name)
		in.put(i, n)
	}
	in.hold(w, name, n, r, in.version)
}

// row returns what is known of the name of resource i, and how often the response has it.
func (in *intake) row(i int, name string) (*clientName, uint64) {
	if n := in.rows[i]; n != nil && n.res != nil { // else it may be forgotten, or have just come
		in.put(i, n)
		return n, in.times(n)
	}
	n := in.w.names[name]
	in.put(i, n)
	return n, in.seen(name)
}

func (in *intake) put(i int, n *clientName) {
	in.rows[i] = n
	if n != nil {
		n.place = int32(i)
	}
}

// check asks whether the client can use a resource. What it uses already it can, unless it is in doubt.
func (in *intake) check(n *clientName, r *xds.Resource) (err error) {
	if in.opts.Check == nil || n != nil && n.res != nil && !n.doubted && alike(n.res, r) {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %s", cut(fmt.Sprint(p), maxCause))
		}
	}()
	return brief(in.opts.Check(r))
}

// unread refuses a resource that cannot be read, if its name can.
func (in *intake) unread(err error) {
	name := xds.CanonicalName(xds.MalformedName(err))
	if name == "" {
		return
	}
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: in.w.typ}
	if in.seen(name) == seenNever && in.w.covers(name, r, isTold, "") {
		in.see(name, seenTold)
		in.refuse(in.w, name, r, brief(err))
	}
}

// beat lets the TTL of what is held begin anew: a resource without a body only says that it
// still is what it was. In SotW its version is the response's.
func (in *intake) beat(r *xds.Resource) {
	if r == nil || r.Stamp == nil {
		return
	}
	name := xds.CanonicalName(r.Name)
	n := in.w.names[name]
	if n == nil || n.res == nil {
		return
	}
	if !in.w.delta { // there a removal may follow
		n.round = max(n.round, in.w.round)
	}
	if r.TTL > 0 && (!in.w.delta || r.Version == n.res.Version) {
		in.expire(in.w, name, n, r.TTL)
	}
}

// sweep finds what a response that tells the full state lacks: "If a previously seen resource
// is not present in a new response, that indicates that the resource has been removed". Of what
// was never seen it says nothing.
func (in *intake) sweep() {
	w := in.w
	var gone []string
	if w.listed {
		for _, n := range w.rows {
			if n != nil && n.lacks(w.round) && w.names[n.called()] == n { // else it is forgotten
				gone = append(gone, n.called())
			}
		}
	} else {
		for name, n := range w.names {
			if n.lacks(w.round) {
				gone = append(gone, name)
			}
		}
	}
	slices.Sort(gone)
	for _, name := range slices.Compact(gone) { // a response that had it twice was refused
		n := w.names[name]
		in.remove(w, name, nil)
		in.rows = append(in.rows, n) // it may stay
	}
}
