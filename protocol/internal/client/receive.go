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
	err := ts.receive(resp)
	a := answer{nonce: resp.Nonce}
	if err != nil {
		a.status = &xds.Status{Code: 3, Message: err.Error()} // INVALID_ARGUMENT
		ts.complete = false
		// The server may not send the other resources again on this stream.
		ts.namesUnchanged = ts.namesUnchanged && ts.typ.FullState
	} else {
		ts.acceptVersion(resp)
	}
	// "The version_info indicates the most recent version that the client is using."
	a.version = ts.version
	ts.nonce, ts.answers = resp.Nonce, append(ts.answers, a)
	return err
}

// acceptVersion records the version of an accepted response (CLI-4). A heartbeat has no content. A
// response with the same version as the last one may have only some resources: others, which were
// refused or dropped or never arrived, may still be missing.
func (ts *typeState) acceptVersion(resp *xds.Response) {
	again := ts.version == resp.Version
	ts.version = resp.Version
	dropped := len(resp.Errors) > 0 || resp.Changes != nil && len(resp.Missing) > 0
	switch {
	case !ts.namesUnchanged, ts.client.opts.DropOnError && dropped:
		ts.complete = false
	case again && ts.complete:
	default:
		ts.complete = !isHeartbeat(resp) && (!again || ts.typ.FullState)
	}
}

// isHeartbeat reports whether a response is only a heartbeat.
func isHeartbeat(r *xds.Response) bool {
	return r.Changes != nil && len(r.Beats) > 0 && len(r.Upserts) == 0
}

// isFullState reports whether a name that the response lacks is removed. A heartbeat is not a full
// state. If the response has malformed resources, a missing name may be one of these.
func (ts *typeState) isFullState(r *xds.Response) bool {
	return !ts.delta && ts.typ.FullState && len(r.Malformed) == 0 && !isHeartbeat(r)
}

// An intake is one response while it is applied.
type intake struct {
	ts           *typeState
	changes      *xds.Changes
	version      string
	nack         nackText
	unknownNames map[string]uint64 // for names that were unknown before: how often the response has the name
	rows         []*nameState      // becomes typeState.rows
	nextRow      int               // the expected place of the next resource in typeState.rows
}

// receive applies a response. It returns the error of the NACK, or nil.
func (ts *typeState) receive(resp *xds.Response) error {
	ts.round += seenTold
	in := &intake{ts: ts, changes: resp.Changes, version: resp.Version}
	if in.changes == nil {
		in.changes = &xds.Changes{}
	}
	in.countNames()
	full := ts.isFullState(resp)
	over := in.exceedsBudget(full)
	if over != nil {
		in.refuseAll(over)
		full = false
	} else {
		for i, r := range in.changes.Upserts {
			in.apply(i, r)
		}
	}
	for _, r := range in.changes.Beats {
		in.heartbeat(r)
	}
	in.applyRemovals()
	in.markErrors(resp.Errors)
	for _, err := range resp.Malformed {
		in.nack.add("", err)
		in.refuseMalformed(err)
	}
	if full {
		in.removeMissing()
	}
	in.keepRows(resp, full)
	for _, name := range in.changes.Missing {
		ts.applyMissing(xds.CanonicalName(name))
	}
	for _, e := range resp.Errors {
		ts.applyError(e)
	}
	return in.nack.err()
}

// applyRemovals removes the names that a delta response lists as removed or absent (CLI-3).
func (in *intake) applyRemovals() {
	for _, names := range [][]string{in.changes.Removed, in.changes.Absent} {
		for _, name := range names {
			name = xds.CanonicalName(name)
			if in.timesSeen(name) == seenNever {
				in.setTimesSeen(name, seenOnce) // the response may have the name many times
				in.ts.applyRemoval(name, nil)
			}
		}
	}
}

// markErrors counts the names of resource_errors as names of the response: an error is not a removal
// (CLI-11).
func (in *intake) markErrors(list []xds.ResourceError) {
	for _, e := range list {
		n := in.ts.names[xds.CanonicalName(e.Name)]
		if n != nil {
			n.round = max(n.round, in.ts.round)
		}
	}
}

// keepRows keeps the rows of a SotW response for the next response. After heartbeats, removals or
// errors, some held names are in no row.
func (in *intake) keepRows(resp *xds.Response, full bool) {
	ts := in.ts
	switch {
	case !ts.delta && !isHeartbeat(resp):
		others := len(in.changes.Beats) + len(in.changes.Removed) + len(in.changes.Absent) + len(resp.Errors)
		ts.rows, ts.rowsComplete = in.rows, full && others == 0
	case len(resp.Malformed) > 0:
		ts.rowsComplete = false
	}
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
	times, ok := in.unknownNames[name]
	if ok {
		return times
	}
	n := in.ts.names[name]
	if n == nil {
		return seenNever
	}
	return in.timesSeenOf(n)
}

// timesSeenOf does the same as timesSeen, for a name that was known before.
func (in *intake) timesSeenOf(n *nameState) uint64 {
	if n.round < in.ts.round {
		return seenNever
	}
	return n.round - in.ts.round + seenOnce
}

func (in *intake) setTimesSeen(name string, times uint64) {
	_, unknown := in.unknownNames[name]
	n := in.ts.names[name]
	if !unknown && n != nil {
		n.round = in.ts.round + times - seenOnce
		if times != seenTold { // with seenTold, n may be forgotten before the response has the name again
			return
		}
	}
	if in.unknownNames == nil {
		in.unknownNames = map[string]uint64{}
	}
	in.unknownNames[name] = times
}

// expected returns the state of a resource's name, or nil if the name is unknown. It looks at the
// expected place first, which costs less than a lookup of the name.
func (in *intake) expected(r *xds.Resource) *nameState {
	rows := in.ts.rows
	if in.nextRow < len(rows) && rows[in.nextRow].holds(r) {
		in.nextRow++
		return rows[in.nextRow-1]
	}
	n := in.ts.names[xds.CanonicalName(r.Name)]
	if n != nil {
		in.nextRow = int(n.place) + 1 // the response has more or fewer names before this one than the last response
	}
	return n
}

// countNames counts how often the response has each name, in order to find duplicates and
// contradictions (CLI-5).
func (in *intake) countNames() {
	in.rows = make([]*nameState, len(in.changes.Upserts))
	for i, r := range in.changes.Upserts {
		if r == nil || r.Stamp == nil {
			continue
		}
		n := in.expected(r)
		if n != nil {
			in.rows[i] = n
			n.round = in.ts.round + min(in.timesSeenOf(n)+1, seenTwice) - seenOnce
			continue
		}
		name := xds.CanonicalName(r.Name)
		in.setTimesSeen(name, min(in.timesSeen(name)+1, seenTwice))
	}
	for _, name := range in.changes.Removed {
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

// invalidName returns the reason why a resource cannot have its name, or nil.
func invalidName(r *xds.Resource) error {
	switch {
	case r == nil || r.Stamp == nil || r.Name == "":
		return errNameless
	case r.Name == xds.Wildcard:
		return errWildcard
	}
	return nil
}

// apply puts resource i in use, or records the reason why it cannot be used.
func (in *intake) apply(i int, r *xds.Resource) {
	if err := invalidName(r); err != nil {
		in.nack.add(fmt.Sprintf("resource %d", i), err)
		return
	}
	ts, name := in.ts, xds.CanonicalName(r.Name)
	n, times := in.row(i, name)
	if times == seenTold {
		return
	}
	err := in.contradiction(r, times)
	requested := in.requests(name, n, r)
	switch {
	case err != nil:
	case !requested:
		// "The client will silently ignore any supplied resources that were not explicitly
		// requested." (CLI-6)
		if n != nil && n.res != nil {
			ts.drop(name, n, nil) // no subscription finds the resource any more
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
		if requested {
			ts.refuse(name, r, err)
			in.setRow(i, ts.names[name])
		}
		return
	}
	if n == nil {
		n = ts.ensure(name)
		in.setRow(i, n)
	}
	ts.accept(name, n, r, in.version)
}

// contradiction returns the reason why a resource cannot be part of the response, or nil.
func (in *intake) contradiction(r *xds.Resource, times uint64) error {
	switch {
	case r.Type != nil && !r.Type.Is(in.ts.typ):
		return fmt.Errorf("wrong type %s", cut(r.Type.URL, maxName))
	case times == seenTwice:
		return errTwice
	case times == seenClash:
		return errClash
	}
	return nil
}

// requests reports whether the client has requested a resource. The state n of its name may be nil.
func (in *intake) requests(name string, n *nameState, r *xds.Resource) bool {
	all := in.ts.wildcard
	if all != nil && all.requested || n != nil && n.requested {
		return true // the usual cases, which are cheap
	}
	return in.ts.covers(name, r, isRequested, "")
}

// row returns the state of the name of resource i, and how often the response has this name.
func (in *intake) row(i int, name string) (*nameState, uint64) {
	n := in.rows[i]
	if n != nil && n.res != nil { // in other cases the state may be forgotten or new
		in.setRow(i, n)
		return n, in.timesSeenOf(n)
	}
	n = in.ts.names[name]
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
	check := in.ts.client.opts.Check
	if check == nil || n.inUse(r) && !n.doubted {
		return nil
	}
	defer func() {
		p := recover()
		if p != nil {
			err = fmt.Errorf("the check panicked: %s", cut(fmt.Sprint(p), maxCause))
		}
	}()
	return shortened(check(r))
}

// inUse reports whether a resource equal to r is held; n may be nil.
func (n *nameState) inUse(r *xds.Resource) bool {
	return n != nil && n.res != nil && sameContent(n.res, r)
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
		in.ts.refuse(name, r, shortened(err))
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
	case !in.ts.delta: // in delta a removal may follow
		n.round = max(n.round, in.ts.round)
	}
	if r.TTL > 0 {
		in.ts.startTTL(name, n, r.TTL)
	}
}

// removeMissing removes the names that a full state lacks: "If a previously seen resource is not
// present in a new response, that indicates that the resource has been removed" (CLI-3). Names that
// the client has never seen stay unknown.
func (in *intake) removeMissing() {
	for _, name := range in.missingNames() {
		n := in.ts.names[name]
		in.ts.applyRemoval(name, nil)
		in.rows = append(in.rows, n) // the resource may stay held
	}
}

// missingNames returns the known names that a full state lacks, sorted. The rows have all of them if
// they are complete.
func (in *intake) missingNames() (list []string) {
	ts := in.ts
	if !ts.rowsComplete {
		for name, n := range ts.names {
			if n.missedBy(ts.round) {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	for _, n := range ts.rows {
		if n == nil || !n.missedBy(ts.round) {
			continue
		}
		name := n.resourceName()
		if ts.names[name] == n { // unless the state is forgotten
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list) // a duplicate in the last response is in two rows
}
