package client

import (
	"fmt"

	"github.com/chancery-xds/chancery/xds"
)

// A Budget limits the memory of the resources that one or more clients hold (SAFE-14). All clients with the same
// Budget belong to one goroutine. The zero value has no limit.
type Budget struct {
	Limit xds.MemoryLimit
	used  int // bytes of the held resources
}

// setHeld makes r the held resource of a name, and counts it. A nil r means that the client holds none.
func (c *Client) setHeld(n *nameState, r *xds.Resource) {
	if b := c.opts.Budget; b != nil {
		b.used += r.Memory() - n.res.Memory()
	}
	n.res = r
}

// Release drops the resources from the [Budget]. The client must not be used after it.
func (c *Client) Release() {
	for _, ts := range c.types {
		for _, n := range ts.names {
			c.setHeld(n, nil)
		}
	}
}

// exceedsBudget returns the error of a response whose resources do not fit into the budget, or nil. Parameter full means that
// the response is the full state of the type.
func (in *intake) exceedsBudget(changes *xds.Changes, full bool) error {
	b := in.opts.Budget
	if b == nil || b.Limit.Bytes == 0 {
		return nil
	}
	used := b.used
	for i, r := range changes.Upserts {
		used += r.Memory()
		if n := in.rows[i]; n != nil {
			used -= n.res.Memory()
		}
	}
	if used <= b.Limit.Bytes {
		return nil
	}
	for _, r := range changes.Upserts {
		if r != nil && r.Stamp != nil && !in.ts.covers(xds.CanonicalName(r.Name), r, isRequested, "") {
			used -= r.Memory() // take ignores this resource (CLI-6)
		}
	}
	used -= in.freedBytes(changes, full)
	if used <= max(b.Limit.Bytes, b.used) { // resources from disk may exceed the limit, but must not grow
		return nil
	}
	return b.Limit.Exceeded(xds.LimitHeld, fmt.Sprintf("with the %d resources of %s in this response, all resources take %d bytes", len(changes.Upserts), in.ts.typ, used))
}

// freedBytes returns the bytes of the resources that a response removes.
func (in *intake) freedBytes(changes *xds.Changes, full bool) (bytes int) {
	switch {
	case in.opts.Retain && !in.opts.DropOnError:
	case full:
		for _, n := range in.ts.names {
			if n.missedBy(in.ts.round) {
				bytes += n.res.Memory()
			}
		}
	default:
		for _, name := range changes.Removed {
			name = xds.CanonicalName(name)
			if n := in.ts.names[name]; n != nil && in.timesSeen(name) == seenNever {
				bytes += n.res.Memory()
			}
		}
	}
	return bytes
}

// refuseAll refuses the subscribed resources of a response, except those that equal the held ones.
func (in *intake) refuseAll(changes *xds.Changes, why error) {
	in.nack.add("", why)
	for i, r := range changes.Upserts {
		if r == nil || r.Stamp == nil || r.Name == "" || r.Name == xds.Wildcard || r.Body == nil {
			continue
		}
		name := xds.CanonicalName(r.Name)
		n := in.ts.names[name]
		if in.ts.covers(name, r, isRequested, "") && (n == nil || n.res == nil || !sameContent(n.res, r)) {
			in.refuse(in.ts, name, r, why)
		}
		in.setRow(i, in.ts.names[name])
	}
}
