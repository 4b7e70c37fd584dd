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
	ts := c.findType(resp.Type)
	if ts == nil || !ts.opened {
		return nil
	}
	err := c.apply(ts, resp)
	v := answer{nonce: resp.Nonce}
	if err != nil {
		v.status = &xds.Status{Code: 3, Message: err.Error()}                         // INVALID_ARGUMENT
		ts.complete, ts.namesUnchanged = false, ts.namesUnchanged && ts.typ.FullState // the server may not send the other resources again on this stream
	} else {
		// A heartbeat has no content. A response with the same version as the last one may have
		// only some resources: others, which were refused or dropped or never arrived, may still be
		// missing.
		again := ts.version == resp.Version
		ts.complete = ts.namesUnchanged && (again && ts.complete || !isHeartbeat(resp) && (!again || ts.typ.FullState))
		ts.version = resp.Version
		if c.opts.DropOnError && (len(resp.Errors) > 0 || resp.Changes != nil && len(resp.Missing) > 0) {
			ts.complete = false // a resource was dropped
		}
	}
	// "The version_info indicates the most recent version that the client is using."
	v.version = ts.version
	ts.nonce, ts.answers = resp.Nonce, append(ts.answers, v)
	return err
}

// isHeartbeat reports whether a response is only a heartbeat.
func isHeartbeat(r *xds.Response) bool {
	return r.Changes != nil && len(r.Beats) > 0 && len(r.Upserts) == 0
}

// An intake is one response while it is applied.
type intake struct {
	*Client
	ts           *typeState
	version      string
	nack         nackText
	unknownNames map[string]uint64 // for names that were unknown before: how often the response has the name
	rows         []*nameState      // becomes typeState.rows
	nextRow      int               // the expected place of the next resource in typeState.rows
}

func (c *Client) apply(ts *typeState, resp *xds.Response) error {
	ts.round += seenTold
	in := &intake{Client: c, ts: ts, version: resp.Version}
	changes := resp.Changes
	if changes == nil {
		changes = &xds.Changes{}
	}
	in.countNames(changes)
	// A heartbeat is not a full state. If the response has malformed resources, a missing name may
	// be one of these.
	full := c.variant == xds.SotW && ts.typ.FullState && len(resp.Malformed) == 0 && !isHeartbeat(resp)
	if over := in.exceedsBudget(changes, full); over != nil {
		in.refuseAll(changes, over)
		full = false
	} else {
		for i, r := range changes.Upserts {
			in.apply(i, r)
		}
	}
	for _, r := range changes.Beats {
		in.heartbeat(r)
	}
	for _, names := range [][]string{changes.Removed, changes.Absent} {
		for _, name := range names {
			name = xds.CanonicalName(name)
			if in.timesSeen(name) == seenNever {
				in.setTimesSeen(name, seenOnce) // the response may have the name many times
				c.applyRemoval(ts, name, nil)
			}
		}
	}
	for _, e := range resp.Errors {
		if n := ts.names[xds.CanonicalName(e.Name)]; n != nil && n.round < ts.round {
			n.round = ts.round // an error is not a removal
		}
	}
	for _, err := range resp.Malformed {
		in.nack.add("", err)
		in.refuseMalformed(err)
	}
	if full {
		in.removeMissing()
	}
	if c.variant == xds.SotW && !isHeartbeat(resp) {
		// After heartbeats, removals or errors, some held names are in no row.
		ts.rows, ts.rowsComplete = in.rows, full && len(changes.Beats)+len(changes.Removed)+len(changes.Absent)+len(resp.Errors) == 0
	} else if len(resp.Malformed) > 0 {
		ts.rowsComplete = false
	}
	for _, name := range changes.Missing {
		c.applyMissing(ts, xds.CanonicalName(name))
	}
	for _, e := range resp.Errors {
		c.applyError(ts, e)
	}
	return in.nack.err()
}

// How often a response has a name.
const (
	seenNever = iota
	seenOnce
	seenTwice
	seenClash // the response also removes the name
	seenTold  // the error of the name is already in the NACK
)

// timesSeen returns how often the response has a name.
func (in *intake) timesSeen(name string) uint64 {
	if times, has := in.unknownNames[name]; has {
		return times
	}
	if n := in.ts.names[name]; n != nil {
		return in.timesSeenOf(n)
	}
	return seenNever
}

// timesSeenOf does the same as seen, for a name that was known before.
func (in *intake) timesSeenOf(n *nameState) uint64 {
	if n.round < in.ts.round {
		return seenNever
	}
	return n.round - in.ts.round + seenOnce
}

func (in *intake) setTimesSeen(name string, times uint64) {
	if _, has := in.unknownNames[name]; !has {
		n := in.ts.names[name]
		if n != nil {
			n.round = in.ts.round + times - seenOnce
		}
		if n != nil && times != seenTold { // with seenTold, n may be forgotten before the response has the name again
			return
		}
		if in.unknownNames == nil {
			in.unknownNames = map[string]uint64{}
		}
	}
	in.unknownNames[name] = times
}

// expected returns the state of a resource's name, or nil if the name is unknown. It looks at the
// expected place first, which costs less than a lookup of the name.
func (in *intake) expected(r *xds.Resource) (n *nameState) {
	if rows := in.ts.rows; in.nextRow < len(rows) && rows[in.nextRow].holds(r) {
		in.nextRow++
		return rows[in.nextRow-1]
	}
	n = in.ts.names[xds.CanonicalName(r.Name)]
	if n != nil {
		in.nextRow = int(n.place) + 1 // the response has more or fewer names before this one than the last response
	}
	return n
}

// countNames counts how often the response has each name, in order to find duplicates and
// contradictions.
func (in *intake) countNames(c *xds.Changes) {
	in.rows = make([]*nameState, len(c.Upserts))
	for i, r := range c.Upserts {
		if r == nil || r.Stamp == nil {
			continue
		}
		if n := in.expected(r); n != nil {
			in.rows[i] = n
			n.round = in.ts.round + min(in.timesSeenOf(n)+1, seenTwice) - seenOnce
			continue
		}
		name := xds.CanonicalName(r.Name)
		in.setTimesSeen(name, min(in.timesSeen(name)+1, seenTwice))
	}
	for _, name := range c.Removed {
		name = xds.CanonicalName(name)
		if in.timesSeen(name) != seenNever {
			in.setTimesSeen(name, seenClash)
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

// apply puts a resource in use, or records the reason why it cannot be used.
func (in *intake) apply(i int, r *xds.Resource) {
	switch {
	case r == nil || r.Stamp == nil || r.Name == "":
		in.nack.add(fmt.Sprintf("resource %d", i), errNameless)
		return
	case r.Name == xds.Wildcard:
		in.nack.add(fmt.Sprintf("resource %d", i), errWildcard)
		return
	}
	ts, name := in.ts, xds.CanonicalName(r.Name)
	n, times := in.row(i, name)
	if times == seenTold {
		return
	}
	// "The client will silently ignore any supplied resources that were not explicitly requested."
	// (CLI-6)
	asked := ts.wildcard != nil && ts.wildcard.requested || n != nil && n.requested || ts.covers(name, r, isRequested, "")
	var err error
	switch {
	case r.Type != nil && !r.Type.Is(ts.typ):
		err = fmt.Errorf("wrong type %s", cut(r.Type.URL, maxName))
	case times == seenTwice:
		err = errTwice
	case times == seenClash:
		err = errClash
	case !asked:
		if n != nil && n.res != nil {
			in.drop(ts, name, n, nil) // no subscription finds the resource any more
		}
		return
	case r.Body == nil:
		in.heartbeat(r)
		return
	default:
		err = in.check(n, r)
	}
	if err != nil {
		in.setTimesSeen(name, seenTold)
		in.nack.add(r.Name, err)
		if asked {
			in.refuse(ts, name, r, err)
			in.setRow(i, ts.names[name])
		}
		return
	}
	if n == nil {
		n = ts.ensure(name)
		in.setRow(i, n)
	}
	in.accept(ts, name, n, r, in.version)
}

// row returns the state of the name of resource i, and how often the response has this name.
func (in *intake) row(i int, name string) (*nameState, uint64) {
	if n := in.rows[i]; n != nil && n.res != nil { // in other cases the state may be forgotten or new
		in.setRow(i, n)
		return n, in.timesSeenOf(n)
	}
	n := in.ts.names[name]
	in.setRow(i, n)
	return n, in.timesSeen(name)
}

func (in *intake) setRow(i int, n *nameState) {
	in.rows[i] = n
	if n != nil {
		n.place = int32(i)
	}
}

// check returns the reason why the client cannot use a resource, or nil. It skips a resource that
// is already in use, except a doubted one (Client.Doubt).
func (in *intake) check(n *nameState, r *xds.Resource) (err error) {
	if in.opts.Check == nil || n != nil && n.res != nil && !n.doubted && sameContent(n.res, r) {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %s", cut(fmt.Sprint(p), maxCause))
		}
	}()
	return shortened(in.opts.Check(r))
}

// refuseMalformed refuses a malformed resource, if its name is known.
func (in *intake) refuseMalformed(err error) {
	name := xds.CanonicalName(xds.MalformedName(err))
	if name == "" {
		return
	}
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: in.ts.typ}
	if in.timesSeen(name) == seenNever && in.ts.covers(name, r, isRequested, "") {
		in.setTimesSeen(name, seenTold)
		in.refuse(in.ts, name, r, shortened(err))
	}
}

// heartbeat restarts the TTL of a held resource: a resource without a body is a heartbeat (CLI-8). The
// client refuses another version than the held one, because it lacks the body (CLI-15). In SotW the
// version of a heartbeat is the version of the response, so only delta compares it. A heartbeat of a
// resource that is not held has no effect: the TTL may have expired while the heartbeat was in flight,
// and a refusal would end the heartbeats of all resources in the response.
func (in *intake) heartbeat(r *xds.Resource) {
	if r == nil || r.Stamp == nil {
		return
	}
	name := xds.CanonicalName(r.Name)
	n := in.ts.names[name]
	switch {
	case n == nil || n.res == nil:
		return
	case in.ts.delta && r.Version != n.res.Version:
		in.nack.add(r.Name, errBodiless)
		return
	}
	if !in.ts.delta { // in delta a removal may follow
		n.round = max(n.round, in.ts.round)
	}
	if r.TTL > 0 {
		in.startTTL(in.ts, name, n, r.TTL)
	}
}

// removeMissing removes the names that a full state lacks: "If a previously seen resource is not present in
// a new response, that indicates that the resource has been removed" (CLI-3). Names that the client
// has never seen stay unknown.
func (in *intake) removeMissing() {
	ts := in.ts
	var missed []string
	if ts.rowsComplete {
		for _, n := range ts.rows {
			if n != nil && n.missedBy(ts.round) && ts.names[n.resourceName()] == n { // unless the state is forgotten
				missed = append(missed, n.resourceName())
			}
		}
	} else {
		for name, n := range ts.names {
			if n.missedBy(ts.round) {
				missed = append(missed, name)
			}
		}
	}
	slices.Sort(missed)
	for _, name := range slices.Compact(missed) { // a duplicate in the last response is in two rows
		n := ts.names[name]
		in.applyRemoval(ts, name, nil)
		in.rows = append(in.rows, n) // the resource may stay held
	}
}
