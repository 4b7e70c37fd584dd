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
		v.status = &xds.Status{Code: 3, Message: err.Error()} // INVALID_ARGUMENT
		w.exact = false
	} else {
		// A heartbeat is no state: what was refused or never came is missing still.
		w.exact = w.steady && (!beats(resp) || w.exact && w.version == resp.Version)
		if w.version = resp.Version; c.opts.DropOnError && (len(resp.Errors) > 0 || resp.Changes != nil && len(resp.Missing) > 0) {
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
			if name = xds.CanonicalName(name); in.seen(name) == seenNever {
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
	if c.variant == xds.SotW && w.typ.FullState && len(resp.Malformed) == 0 && !beats(resp) {
		in.sweep()
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
	if n := in.w.names[name]; n != nil && n.round >= in.w.round {
		return n.round - in.w.round + seenOnce
	}
	return seenNever
}

func (in *intake) see(name string, times uint64) {
	if _, has := in.fresh[name]; !has {
		if n := in.w.names[name]; n != nil {
			n.round = in.w.round + times - seenOnce
			return
		}
		if in.fresh == nil {
			in.fresh = map[string]uint64{}
		}
	}
	in.fresh[name] = times
}

// count finds names that come twice, or are present and removed.
func (in *intake) count(c *xds.Changes) {
	for _, r := range c.Upserts {
		if r != nil && r.Stamp != nil {
			name := xds.CanonicalName(r.Name)
			in.see(name, min(in.seen(name)+1, seenTwice))
		}
	}
	for _, name := range c.Removed {
		if name = xds.CanonicalName(name); in.seen(name) != seenNever {
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
	times := in.seen(name)
	if times == seenTold {
		return
	}
	// "The client will silently ignore any supplied resources that were not explicitly
	// requested."
	asked := w.covers(name, r, isTold, "")
	var err error
	switch {
	case r.Type != nil && !r.Type.Is(w.typ):
		err = fmt.Errorf("its type is %s", cut(r.Type.URL, maxName))
	case times == seenTwice:
		err = errTwice
	case times == seenClash:
		err = errClash
	case !asked:
		if n := w.names[name]; n != nil && n.res != nil {
			in.lose(w, name, n, nil) // what was asked for does not find it any more
		}
		return
	case r.Body == nil:
		in.beat(r)
		return
	default:
		err = in.check(name, r)
	}
	if err != nil {
		in.see(name, seenTold)
		in.wrong.add(r.Name, err)
		if asked {
			in.refuse(w, name, r, err)
		}
		return
	}
	in.hold(w, name, r, in.version)
}

// check asks whether the client can use a resource. What it uses already it can.
func (in *intake) check(name string, r *xds.Resource) (err error) {
	if n := in.w.names[name]; in.opts.Check == nil || n != nil && n.res != nil && alike(n.res, r) {
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
	m, is := errors.AsType[*xds.MalformedError](err)
	if !is || m.Name == "" || m.Name == xds.Wildcard {
		return
	}
	name := xds.CanonicalName(m.Name)
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
	n.round = max(n.round, in.w.round)
	if r.TTL > 0 && (!in.w.delta || r.Version == n.res.Version) {
		in.expire(in.w, name, n, r.TTL)
	}
}

// sweep finds what a response that tells the full state lacks: "If a previously seen resource
// is not present in a new response, that indicates that the resource has been removed". Of what
// was never seen it says nothing.
func (in *intake) sweep() {
	var gone []string
	for name, n := range in.w.names {
		if n.round < in.w.round && (n.res != nil || n.fault != nil && n.fault.refused) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		n := in.w.names[name]
		switch {
		case n.res != nil || n.stray:
			in.remove(in.w, name, nil)
		default:
			in.absent(in.w, name, n, nil)
		}
	}
}
