package protocoltest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// wild sends any request that a client can send. The judge does not compare the resources that wild
// holds, but the responses that were sent to it (see [ledger.settled]).
type wild struct {
	*world
	passive
	kinds  []kind
	node   *xds.Node
	nonces []string            // all nonces of this stream
	last   map[string][]string // names of the newest request by type; SotW
	due    []xds.Request       // answers that it sends when calm
	quiet  bool
	greets bool
}

func newWild(w *world, ks []kind) *wild { return &wild{world: w, kinds: ks, node: agent(w)} }

func (c *wild) connected() {
	c.nonces, c.last, c.due, c.greets = nil, map[string][]string{}, nil, true
}

func (c *wild) act() string { return "" }

func (c *wild) receive(r *xds.Response) {
	c.nonces = append(c.nonces, r.Nonce)
	c.due = append(c.due, xds.Request{Type: r.Type, Nonce: r.Nonce, Version: r.Version})
}

func (c *wild) requests() (out []xds.Request) {
	if c.quiet {
		for _, r := range c.due {
			r.Names = c.last[r.Type.URL]
			out = append(out, r)
		}
		c.due = nil
		return out
	}
	for range 1 + c.chance.IntN(2) {
		out = append(out, c.invent())
	}
	return out
}

func (c *wild) invent() xds.Request {
	k := c.kinds[c.chance.IntN(len(c.kinds))]
	r := xds.Request{Type: k.typ()}
	if c.chance.IntN(100) == 0 {
		r.Type = []*xds.Type{nil, xds.Runtime}[c.chance.IntN(2)]
	}
	if c.greets || c.chance.IntN(8) == 0 {
		r.Node, c.greets = c.node, false
	}
	pick := func() []string { return c.pick(k.asks()) }
	switch c.chance.IntN(4) {
	case 0:
	case 1:
		r.Nonce = []string{"bogus", "0", "-1", "999999", "+1"}[c.chance.IntN(5)]
	default:
		if len(c.nonces) > 0 {
			r.Nonce = c.nonces[len(c.nonces)-1-c.chance.IntN(min(len(c.nonces), 4))]
		}
	}
	if c.chance.IntN(4) == 0 {
		r.Error = &xds.Status{Code: 3, Message: "wild"}
	}
	if c.chance.IntN(4) == 0 {
		r.Version = c.content.view.Table(k.typ()).Version()
	}
	if c.cfg.Variant == xds.SotW {
		r.Names = pick()
		c.last[cmp.Or(r.Type, k.typ()).URL] = r.Names
		return r
	}
	r.Subscribe, r.Unsubscribe = pick(), pick()
	if c.chance.IntN(2) == 0 {
		r.Unsubscribe = nil
	}
	if c.chance.IntN(3) == 0 {
		r.Initial = c.state(k, pick())
	}
	return r
}

// pick returns some names, some of which do not exist.
func (c *wild) pick(asks []string) (names []string) {
	for range c.chance.IntN(4) {
		switch n := c.chance.IntN(len(asks) + 3); {
		case n < len(asks):
			names = append(names, asks[n])
		case n == len(asks):
			names = append(names, "")
		case n == len(asks)+1:
			names = append(names, "nope")
		default:
			names = append(names, xds.Wildcard)
		}
	}
	return names
}

// state returns versions of some resources, right ones and wrong ones.
func (c *wild) state(k kind, names []string) (initial []xds.Version) {
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		if n == "" || strings.HasSuffix(n, xds.Wildcard) {
			continue
		}
		v := xds.Version{Name: n, Version: "stale"}
		if x := c.content.view.Table(k.typ()).Lookup(n); x != nil && c.chance.IntN(2) == 0 {
			v.Version = x.Version
		}
		initial = append(initial, v)
	}
	return initial
}

func (c *wild) calm()                                   { c.quiet = true }
func (c *wild) held(*xds.Type) map[string]*xds.Resource { return nil }
func (c *wild) expire(*xds.Type, *xds.Resource) bool    { return false }
func (c *wild) wants(*xds.Type) ([]string, bool)        { return nil, false }
