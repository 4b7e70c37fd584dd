package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// A Memory is what the newest response of each type had, in its order, on one SotW stream: most of
// it is in the next one, too, and at the same place. [DecodeResponse] gives the same
// [xds.Resource] again for what it finds in it. The zero value is empty. It is not safe for
// concurrent use.
//
// It keeps the resources of the newest responses, and no others, alive. It remembers at most 64
// types, whatever a server makes up.
type Memory struct {
	types map[string][]memo // by URL
}

// A memo is a resource in a response.
type memo struct {
	*xds.Resource
	bare bool // nothing was around its Any, so that this has all that was said
}

const maxRemembered = 64

// keep remembers the resources of a response. One that only lets TTLs begin anew has no news.
func (m *Memory) keep(r *xds.Response, memos []memo) {
	_, has := m.types[r.Type.URL]
	switch {
	case len(memos) == 0 && (!has || len(r.Beats) > 0) || !has && len(m.types) == maxRemembered:
		return
	case m.types == nil:
		m.types = map[string][]memo{}
	}
	m.types[r.Type.URL] = memos
}

// A recall finds in a new response what was in the last one. What it misses is made anew, which
// takes longer and comes to the same.
type recall struct {
	last  []memo
	at    int            // the place in last of what should come next
	names map[string]int // the places; nil: all was in order until now
	bare  []byte         // how an Any of the type begins, up to the length of its value
	memos []memo         // of the new response
}

// begin looks at the newest response of a type. The new one has about as many resources: what it
// has besides is no reason to keep room.
func (c *recall) begin(m *Memory, t *xds.Type) {
	c.last = m.types[t.URL]
	c.memos = make([]memo, 0, len(c.last)+1)
	c.bare = protowire.AppendString(protowire.AppendTag(nil, anyTypeURL, protowire.BytesType), t.URL)
	c.bare = protowire.AppendTag(c.bare, anyValue, protowire.BytesType)
}

// same returns what is at the next place, if b is the same Any again: then there is nothing to
// parse. Else it returns nil.
func (c *recall) same(b []byte) *xds.Resource {
	if c.at >= len(c.last) || !c.last[c.at].bare {
		return nil
	}
	m := c.last[c.at]
	value, found := bytes.CutPrefix(b, c.bare)
	if !found {
		return nil
	}
	if body, n := protowire.ConsumeBytes(value); n != len(value) || !bytes.Equal(body, m.Body) {
		return nil
	}
	c.at++
	c.memos = append(c.memos, m)
	return m.Resource
}

// named returns what was there under a name, or nil, and goes on behind it.
func (c *recall) named(name string) *xds.Resource {
	if len(c.last) == 0 {
		return nil
	}
	near := 1
	if c.names == nil {
		near = 4 // the next few may be gone
	}
	for i := c.at; i < min(c.at+near, len(c.last)); i++ {
		if c.last[i].Name == name {
			c.at = i + 1
			return c.last[i].Resource
		}
	}
	if c.names == nil {
		c.names = make(map[string]int, len(c.last))
		for i, m := range c.last {
			c.names[m.Name] = i
		}
	}
	i, has := c.names[name]
	if !has {
		return nil
	}
	c.at = i + 1
	return c.last[i].Resource
}
