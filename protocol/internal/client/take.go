package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Receive applies a response. Then its ACK or NACK is due. The client uses the good resources of a
// response even if other resources in it are bad (CLI-2). The returned error has the text of the
// NACK, which lists all bad resources, up to 64 KiB of text.
//
// A response changes nothing if the client has sent no request for this type on this stream.
func (c *Client) Receive(resp *xds.Response) error {
	w := c.find(resp.Type)
	if w == nil || !w.opened {
		return nil
	}
	err := c.apply(w, resp)
	v := verdict{nonce: resp.Nonce}
	if err != nil {
		v.status = &xds.Status{Code: 3, Message: err.Error()}  // INVALID_ARGUMENT
		w.exact, w.steady = false, w.steady && w.typ.FullState // the server may not send the other resources again on this stream
	} else {
		// A heartbeat has no content. A response with the same version as the last one may have
		// only some resources: others, which were refused or dropped or never arrived, may still be
		// missing.
		again := w.version == resp.Version
		w.exact = w.steady && (again && w.exact || !beats(resp) && (!again || w.typ.FullState))
		w.version = resp.Version
		if c.opts.DropOnError && (len(resp.Errors) > 0 || resp.Changes != nil && len(resp.Missing) > 0) {
			w.exact = false // a resource was dropped
		}
	}
	// "The version_info indicates the most recent version that the client is using."
	v.version = w.version
	w.nonce, w.verdicts = resp.Nonce, append(w.verdicts, v)
	return err
}

// beats reports whether a response is only a heartbeat.
func beats(r *xds.Response) bool {
	return r.Changes != nil && len(r.Beats) > 0 && len(r.Upserts) == 0
}

// An intake is one response while it is applied.
type intake struct {
	*Client
	w       *typeState
	version string
	wrong   complaint
	fresh   map[string]uint64 // for names that were unknown before: how often the response has the name
	rows    []*nameState      // becomes typeState.rows
	at      int               // the expected place of the next resource in typeState.rows
}

func (c *Client) apply(w *typeState, resp *xds.Response) error {
	w.round += seenTold
	in := &intake{Client: c, w: w, version: resp.Version}
	changes := resp.Changes
	if changes == nil {
		changes = &xds.Changes{}
	}
	in.count(changes)
	// A heartbeat is not a full state. If the response has malformed resources, a missing name may
	// be one of these.
	full := c.variant == xds.SotW && w.typ.FullState && len(resp.Malformed) == 0 && !beats(resp)
	if over := in.exceeds(changes, full); over != nil {
		in.refuseAll(changes, over)
		full = false
	} else {
		for i, r := range changes.Upserts {
			in.take(i, r)
		}
	}
	for _, r := range changes.Beats {
		in.beat(r)
	}
	for _, names := range [][]string{changes.Removed, changes.Absent} {
		for _, name := range names {
			name = xds.CanonicalName(name)
			if in.seen(name) == seenNever {
				in.see(name, seenOnce) // the response may have the name many times
				c.remove(w, name, nil)
			}
		}
	}
	for _, e := range resp.Errors {
		if n := w.names[xds.CanonicalName(e.Name)]; n != nil && n.round < w.round {
			n.round = w.round // an error is not a removal
		}
	}
	for _, err := range resp.Malformed {
		in.wrong.add("", err)
		in.unread(err)
	}
	if full {
		in.sweep()
	}
	if c.variant == xds.SotW && !beats(resp) {
		// After heartbeats, removals or errors, some held names are in no row.
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
	seenClash // the response also removes the name
	seenTold  // the error of the name is already in the NACK
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

// times does the same as seen, for a name that was known before.
func (in *intake) times(n *nameState) uint64 {
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
		if n != nil && times != seenTold { // with seenTold, n may be forgotten before the response has the name again
			return
		}
		if in.fresh == nil {
			in.fresh = map[string]uint64{}
		}
	}
	in.fresh[name] = times
}

// find returns the state of a resource's name, or nil if the name is unknown. It looks at the
// expected place first, which costs less than a lookup of the name.
func (in *intake) find(r *xds.Resource) (n *nameState) {
	if rows := in.w.rows; in.at < len(rows) && rows[in.at].holds(r) {
		in.at++
		return rows[in.at-1]
	}
	n = in.w.names[xds.CanonicalName(r.Name)]
	if n != nil {
		in.at = int(n.place) + 1 // the response has more or fewer names before this one than the last response
	}
	return n
}

// count counts how often the response has each name, in order to find duplicates and
// contradictions.
func (in *intake) count(c *xds.Changes) {
	in.rows = make([]*nameState, len(c.Upserts))
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
	errNameless = errors.New("missing name")
	errWildcard = errors.New(`invalid name "*"`)
	// "Clients should NACK responses that contain multiple instances of the same resource name."
	// The client uses no instance, because it cannot know the right one (CLI-5).
	errTwice    = errors.New("duplicate resource")
	errClash    = errors.New("both present and removed")
	errBodiless = errors.New("has no body, and the client holds another version")
)

// take puts a resource in use, or records the reason why it cannot be used.
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
	// "The client will silently ignore any supplied resources that were not explicitly requested."
	// (CLI-6)
	asked := w.all != nil && w.all.told || n != nil && n.told || w.covers(name, r, isTold, "")
	var err error
	switch {
	case r.Type != nil && !r.Type.Is(w.typ):
		err = fmt.Errorf("wrong type %s", cut(r.Type.URL, maxName))
	case times == seenTwice:
		err = errTwice
	case times == seenClash:
		err = errClash
	case !asked:
		if n != nil && n.res != nil {
			in.lose(w, name, n, nil) // no subscription finds the resource any more
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

// row returns the state of the name of resource i, and how often the response has this name.
func (in *intake) row(i int, name string) (*nameState, uint64) {
	if n := in.rows[i]; n != nil && n.res != nil { // in other cases the state may be forgotten or new
		in.put(i, n)
		return n, in.times(n)
	}
	n := in.w.names[name]
	in.put(i, n)
	return n, in.seen(name)
}

func (in *intake) put(i int, n *nameState) {
	in.rows[i] = n
	if n != nil {
		n.place = int32(i)
	}
}

// check returns the reason why the client cannot use a resource, or nil. It skips a resource that
// is already in use, except a doubted one (Client.Doubt).
func (in *intake) check(n *nameState, r *xds.Resource) (err error) {
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

// unread refuses a malformed resource, if its name is known.
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

// beat restarts the TTL of a held resource: a resource without a body is a heartbeat (CLI-8). The
// client refuses another version than the held one, because it lacks the body (CLI-15). In SotW the
// version of a heartbeat is the version of the response, so only delta compares it. A heartbeat of a
// resource that is not held has no effect: the TTL may have expired while the heartbeat was in flight,
// and a refusal would end the heartbeats of all resources in the response.
func (in *intake) beat(r *xds.Resource) {
	if r == nil || r.Stamp == nil {
		return
	}
	name := xds.CanonicalName(r.Name)
	n := in.w.names[name]
	switch {
	case n == nil || n.res == nil:
		return
	case in.w.delta && r.Version != n.res.Version:
		in.wrong.add(r.Name, errBodiless)
		return
	}
	if !in.w.delta { // in delta a removal may follow
		n.round = max(n.round, in.w.round)
	}
	if r.TTL > 0 {
		in.expire(in.w, name, n, r.TTL)
	}
}

// sweep removes the names that a full state lacks: "If a previously seen resource is not present in
// a new response, that indicates that the resource has been removed" (CLI-3). Names that the client
// has never seen stay unknown.
func (in *intake) sweep() {
	w := in.w
	var gone []string
	if w.listed {
		for _, n := range w.rows {
			if n != nil && n.lacks(w.round) && w.names[n.called()] == n { // unless the state is forgotten
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
	for _, name := range slices.Compact(gone) { // a duplicate in the last response is in two rows
		n := w.names[name]
		in.remove(w, name, nil)
		in.rows = append(in.rows, n) // the resource may stay held
	}
}
