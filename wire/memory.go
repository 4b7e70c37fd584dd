package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// A Memory remembers the resources of the newest response of each type on one SotW stream. The next
// response usually has most of these resources again, in the same order. [DecodeResponse] then
// returns the same [xds.Resource] instead of a copy. The zero value is empty. A Memory is not safe
// for concurrent use.
//
// A Memory keeps only the resources of the newest responses, of at most 64 types, and of at most
// [ResponseOptions.Limit] bytes: a server may send types that the client does not use.
type Memory struct {
	types map[string][]remembered // by type URL
	costs map[string]int          // of the responses, in bytes, by type URL
}

// A remembered is a resource in a response.
type remembered struct {
	*xds.Resource
	bare bool // the resource came as an Any without a Resource message, so the Any has all its data
}

const maxRemembered = 64

// keep remembers the resources of a response, which take cost bytes. A response with heartbeats only is
// ignored. The parameter most is the limit of all responses; zero: no limit.
func (m *Memory) keep(r *xds.Response, memos []remembered, cost, most int) {
	if len(memos) == 0 && len(r.Beats) > 0 {
		return
	}
	delete(m.types, r.Type.URL)
	delete(m.costs, r.Type.URL)
	sum := cost
	for _, c := range m.costs {
		sum += c
	}
	if len(memos) == 0 || len(m.types) == maxRemembered || most > 0 && sum > most {
		return
	}
	if m.types == nil {
		m.types, m.costs = map[string][]remembered{}, map[string]int{}
	}
	m.types[r.Type.URL], m.costs[r.Type.URL] = memos, cost
}

// A recall finds resources of the last response in a new response. Resources that it does not find
// are decoded again, which is slower but has the same result.
type recall struct {
	last  []remembered
	at    int            // expected position in last of the next resource
	names map[string]int // positions by name; nil: the order was the same so far
	bare  []byte         // the start of an Any of the type, up to the length of its value
	memos []remembered   // the memos of the new response
}

// begin prepares to decode a new response of a type. It reserves room for about as many resources as the last
// response had.
func (c *recall) begin(m *Memory, t *xds.Type) {
	c.last = m.types[t.URL]
	c.memos = make([]remembered, 0, len(c.last)+1)
	c.bare = protowire.AppendString(protowire.AppendTag(nil, anyTypeURL, protowire.BytesType), t.URL)
	c.bare = protowire.AppendTag(c.bare, anyValue, protowire.BytesType)
}

// same returns the resource at the expected position, if b is an equal Any. Then b need not be
// decoded. Otherwise same returns nil.
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

// named returns the remembered resource with the name, or nil. The expected position is then the
// position after this resource.
func (c *recall) named(name string) *xds.Resource {
	if len(c.last) == 0 {
		return nil
	}
	near := 1
	if c.names == nil {
		near = 4 // a few resources may have been removed
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
