package client

import (
	"fmt"

	"github.com/chancery-xds/chancery/xds"
)

// A Budget limits the memory of the resources that one or more clients hold (SAFE-14). All clients
// with the same Budget belong to one goroutine. The zero value has no limit.
type Budget struct {
	Limit xds.MemoryLimit
	used  int // bytes of the held resources; invariant: the sum of Memory of all fields nameState.res
}

// setHeld makes r the held resource of a name, and counts it. A nil r means that the client holds none.
func (ts *typeState) setHeld(n *nameState, r *xds.Resource) {
	b := ts.client.opts.Budget
	if b != nil {
		b.used += r.Memory() - n.res.Memory()
	}
	n.res = r
}

// Release drops the resources from the [Budget]. The client must not be used after it.
func (c *Client) Release() {
	for _, ts := range c.types {
		for _, n := range ts.names {
			ts.setHeld(n, nil)
		}
	}
}

// exceedsBudget returns the error of a response whose resources do not fit into the budget, or nil. The
// parameter full means that the response is the full state of the type.
func (in *intake) exceedsBudget(full bool) error {
	b := in.ts.client.opts.Budget
	if b == nil || b.Limit.Bytes == 0 {
		return nil
	}
	used := b.used + in.addedBytes()
	if used <= b.Limit.Bytes {
		return nil
	}
	for _, r := range in.changes.Upserts {
		if r != nil && r.Stamp != nil && !in.ts.covers(xds.CanonicalName(r.Name), r, isRequested, "") {
			used -= r.Memory() // apply ignores this resource (CLI-6)
		}
	}
	used -= in.freedBytes(full)
	if used <= max(b.Limit.Bytes, b.used) { // resources from disk may exceed the limit, but must not grow
		return nil
	}
	return b.Limit.Exceeded(xds.LimitHeld, fmt.Sprintf("with the %d resources of %s in this response, all resources take %d bytes", len(in.changes.Upserts), in.ts.typ, used))
}

// addedBytes returns the bytes of the resources of a response, without those that they replace.
func (in *intake) addedBytes() (bytes int) {
	for i, r := range in.changes.Upserts {
		bytes += r.Memory()
		n := in.rows[i]
		if n != nil {
			bytes -= n.res.Memory()
		}
	}
	return bytes
}

// freedBytes returns the bytes of the resources that a response removes.
func (in *intake) freedBytes(full bool) (bytes int) {
	ts := in.ts
	switch {
	case ts.retains():
	case full:
		for _, n := range ts.names {
			if n.missedBy(ts.round) {
				bytes += n.res.Memory()
			}
		}
	default:
		for _, name := range in.changes.Removed {
			name = xds.CanonicalName(name)
			n := ts.names[name]
			if n != nil && in.timesSeen(name) == seenNever {
				bytes += n.res.Memory()
			}
		}
	}
	return bytes
}

// refuseAll refuses the requested resources of a response, except those that equal the held ones.
func (in *intake) refuseAll(why error) {
	in.nack.add("", why)
	for i, r := range in.changes.Upserts {
		if invalidName(r) != nil || r.Body == nil {
			continue
		}
		name := xds.CanonicalName(r.Name)
		if in.ts.covers(name, r, isRequested, "") && !in.ts.names[name].inUse(r) {
			in.ts.refuse(name, r, why)
		}
		in.setRow(i, in.ts.names[name])
	}
}
