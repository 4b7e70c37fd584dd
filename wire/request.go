// Package wire translates between the protocol's protobuf encoding and the
// vocabulary of package xds. It never looks inside a resource beyond the few
// fields that ordering needs, links no generated Envoy code, performs no I/O
// and starts no goroutine.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// ErrLimit is wrapped by errors that tell of a request that is well-formed but
// larger than the server takes, which are each an [xds.LimitError].
var ErrLimit = errors.New("limit exceeded")

// exceeds returns the error of a request that is beyond a limit.
func exceeds(limit xds.Limit, format string, args ...any) error {
	return &xds.LimitError{Limit: limit, Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrLimit)}
}

// A Decoder decodes the requests of one stream, in their order. It is not safe
// for concurrent use; the zero value decodes SotW requests without a limit.
//
// The names of a request, and the versions listed with them, share one copy of
// their bytes, so that a request with 1,000 names costs two allocations. Whoever
// keeps one of them must clone it, or keeps all.
type Decoder struct {
	Variant xds.Variant

	// MaxNames is how many entries each list of names in one request may have;
	// more is ErrLimit. Zero: no limit but the message's size.
	MaxNames int

	// MaxNode is how many bytes a node may have; more is ErrLimit. Zero: no
	// limit but the message's size.
	MaxNode int

	// MaxTypeURL is how many bytes a type URL may have; more is ErrLimit. Zero:
	// no limit but the message's size.
	MaxTypeURL int

	node *xds.Node // of the first request; nil until then
	said []saying  // SotW: the names of the last request of a type, the newest last
}

// A saying is how a client listed names, which nearly every ACK repeats.
type saying struct {
	typ  *xds.Type
	size int
	hash uint64
}

// maxSaid is of how many types the names of the last request are remembered.
const maxSaid = 64

var seed = maphash.MakeSeed()

// repeats reports whether the last request of the type listed its names by the same
// bytes, and remembers those of this one; nil: there are none, or they are scattered.
func (d *Decoder) repeats(t *xds.Type, names []byte) bool {
	if t == nil { // it is a type that others may name
		d.said = nil
		return false
	}
	var was saying
	if at := slices.IndexFunc(d.said, func(s saying) bool { return s.typ.Is(t) }); at >= 0 {
		was = d.said[at]
		d.said = slices.Delete(d.said, at, at+1)
	}
	if len(names) == 0 {
		return false
	}
	is := saying{t, len(names), maphash.Bytes(seed, names)}
	if len(d.said) == maxSaid {
		d.said = slices.Delete(d.said, 0, 1)
	}
	d.said = append(d.said, is)
	return is.size == was.size && is.hash == was.hash
}

// Decode decodes a DiscoveryRequest or a DeltaDiscoveryRequest. It keeps no
// reference to b.
//
// "Only the first message on a stream is guaranteed to carry the node
// identifier." The node of later messages, which Envoy repeats in each (61 KB),
// is not decoded: their Node is nil, unless its id is another than that of the
// first; then Node has the id alone.
//
// Names in resource locators ("alternative to resource_names") count as names,
// or a request that has its names there would subscribe to everything. Their
// dynamic parameters choose "between multiple variants of the same resource";
// ours have one, which has no constraints and so goes with any parameters.
//
// Names that a SotW request lists byte by byte as the last one of its type did are left
// out (xds.Request.SameNames), for they are in every ACK, and there may be 100,000. Of those
// a hash is remembered.
//
// Names are canonical ([xds.CanonicalName]), so that a name is one however the
// client writes it. A type that is not set is nil. A key that initial_resource_versions has twice
// is listed twice; the later holds.
func (d *Decoder) Decode(b []byte) (req xds.Request, err error) {
	l := &layouts[d.Variant]
	c, err := scan(l, b)
	if err != nil {
		return req, fmt.Errorf("malformed %s: %w", l.message, err)
	}
	if n := max(c.names, c.subscribe, c.unsubscribe, c.initial); d.MaxNames > 0 && n > d.MaxNames {
		return req, exceeds(xds.LimitNames, "%s with %d names, more than %d", l.message, n, d.MaxNames)
	}
	if d.MaxNode > 0 && c.node > d.MaxNode {
		return req, exceeds(xds.LimitNode, "%s with a node of %d bytes, more than %d", l.message, c.node, d.MaxNode)
	}
	if d.MaxTypeURL > 0 && len(c.url) > d.MaxTypeURL {
		return req, exceeds(xds.LimitTypeURL, "%s with a type_url of %d bytes, more than %d", l.message, len(c.url), d.MaxTypeURL)
	}
	req.Type = typeOf(c.url)
	var rest []byte
	if d.Variant == xds.SotW && d.repeats(req.Type, c.row(b)) {
		req.SameNames = true
		b, rest = b[:c.from], b[c.to:]
		c.names, c.listed = 0, 0
	}

	first := d.node == nil
	if first {
		d.node = &xds.Node{}
	}
	req.Names = grown[string](c.names)
	req.Subscribe = grown[string](c.subscribe)
	req.Unsubscribe = grown[string](c.unsubscribe)
	req.Initial = grown[xds.Version](c.initial)
	a, own := newArena(c.listed), newArena(c.own)
	var version build
	var id []byte // in a later message; nil: none
	for len(b)+len(rest) > 0 {
		if len(b) == 0 {
			b, rest = rest, nil
		}
		var f field
		f, b, _ = next(b) // scan has seen it
		if f.typ != protowire.BytesType {
			continue // "wrong" wire types are unknown fields
		}
		switch f.num {
		case l.version:
			req.Version = own.add(f.data)
		case l.nonce:
			req.Nonce = own.add(f.data)
		case l.names:
			req.Names = append(req.Names, a.name(f.data))
		case l.subscribe:
			req.Subscribe = append(req.Subscribe, a.name(f.data))
		case l.unsubscribe:
			req.Unsubscribe = append(req.Unsubscribe, a.name(f.data))
		case l.locators:
			req.Names = a.addLocated(req.Names, f.data)
		case l.locate:
			req.Subscribe = a.addLocated(req.Subscribe, f.data)
		case l.unlocate:
			req.Unsubscribe = a.addLocated(req.Unsubscribe, f.data)
		case l.initial:
			key, value, _ := entry(f.data)
			req.Initial = append(req.Initial, xds.Version{Name: a.name(key), Version: a.add(value)})
		case l.failure:
			// "Presence of error_detail" makes it a NACK, even if empty.
			if req.Error == nil {
				req.Error = &xds.Status{}
			}
			err = decodeStatus(f.data, req.Error)
		case l.node:
			if first {
				req.Node = d.node
				err = decodeNode(f.data, d.node, &version)
			} else {
				id = nodeID(f.data, id)
			}
		}
		if err != nil {
			return xds.Request{}, fmt.Errorf("malformed %s: field %d: %w", l.message, f.num, err)
		}
	}
	if id != nil && string(id) != d.node.ID {
		req.Node = &xds.Node{ID: strings.ToValidUTF8(string(id), "\uFFFD")}
	}
	return req, nil
}

// A layout gives the field numbers of a request message; zero: no such field.
type layout struct {
	message                         string
	node, typeURL, nonce, failure   protowire.Number
	version, names, locators        protowire.Number // SotW
	subscribe, unsubscribe, initial protowire.Number // delta
	locate, unlocate                protowire.Number // delta: resource_locators_subscribe and _unsubscribe
}

var layouts = [...]layout{
	xds.SotW:  {message: "DiscoveryRequest", node: 2, typeURL: 4, nonce: 5, failure: 6, version: 1, names: 3, locators: 7},
	xds.Delta: {message: "DeltaDiscoveryRequest", node: 1, typeURL: 2, nonce: 6, failure: 7, subscribe: 3, unsubscribe: 4, initial: 5, locate: 8, unlocate: 9},
}

// counts says how much room the strings of a request need.
type counts struct {
	own, listed, node                      int // bytes of version and nonce, of all lists, of node
	names, subscribe, unsubscribe, initial int
	url                                    []byte

	from, to  int  // where the names stand
	scattered bool // they do not stand in a row
}

// row returns the part of the message that has the names and nothing else, nil if
// there is none.
func (c *counts) row(b []byte) []byte {
	if c.scattered {
		return nil
	}
	return b[c.from:c.to]
}

// listedAt notes where names stand.
func (c *counts) listedAt(from, to int) {
	if c.to == 0 {
		c.from, c.to = from, from
	}
	c.scattered = c.scattered || c.to != from
	c.to = to
}

// short splits off b what it begins with of fields of a number below 16 with less
// than 128 bytes each, and tells how many there are. They are read once for each
// response, and there may be 100,000.
func short(b []byte, num protowire.Number) (n, size int) {
	tag := byte(num)<<3 | byte(protowire.BytesType)
	for size+2 <= len(b) && b[size] == tag && b[size+1] < 128 && size+2+int(b[size+1]) <= len(b) {
		size += 2 + int(b[size+1])
		n++
	}
	return n, size
}

// scan checks the top level of a request and measures it.
func scan(l *layout, b []byte) (c counts, err error) {
	for all := len(b); len(b) > 0; {
		at := all - len(b)
		if n, size := short(b, l.names); n > 0 && l.names > 0 {
			c.listedAt(at, at+size)
			c.names += n
			c.listed += size - 2*n
			if !utf8.Valid(b[:size]) { // what is between the names is ASCII
				return c, fmt.Errorf("field %d: %w", l.names, errUTF8)
			}
			b = b[size:]
			continue
		}
		var f field
		if f, b, err = next(b); err != nil {
			return c, err
		}
		if f.typ != protowire.BytesType {
			continue
		}
		text := f.data
		switch f.num {
		case l.version, l.nonce:
			c.own += len(text)
		case l.typeURL:
			c.url = text
		case l.node:
			c.node += len(text)
			text = nil
		case l.names:
			c.names++
			c.listed += len(text)
			c.listedAt(at, all-len(b))
		case l.subscribe:
			c.subscribe++
			c.listed += len(text)
		case l.unsubscribe:
			c.unsubscribe++
			c.listed += len(text)
		case l.locators:
			text, err = c.located(&c.names, text)
			c.scattered = true
		case l.locate:
			text, err = c.located(&c.subscribe, text)
		case l.unlocate:
			text, err = c.located(&c.unsubscribe, text)
		case l.initial:
			c.initial++
			var key, value []byte
			key, value, err = entry(text)
			c.listed += len(key) + len(value)
			text = nil
		default:
			text = nil
		}
		if err == nil && !utf8.Valid(text) {
			err = errUTF8
		}
		if err != nil {
			return c, fmt.Errorf("field %d: %w", f.num, err)
		}
	}
	return c, nil
}

// located counts the name of a resource locator.
func (c *counts) located(names *int, locator []byte) (name []byte, err error) {
	if name, err = located(locator); len(name) > 0 {
		*names++
		c.listed += len(name)
	}
	return name, err
}

// located returns the name of a resource locator. Those of old clients, of type
// udpa.core.v1.ResourceLocator, have a number in its place, and so no name.
func located(b []byte) (name []byte, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return nil, err
		}
		if f.num != 1 || f.typ != protowire.BytesType {
			continue
		}
		if name = f.data; !utf8.Valid(name) {
			return nil, errUTF8
		}
	}
	return name, nil
}

// addLocated appends the name of a resource locator, if it has one.
func (a *arena) addLocated(names []string, locator []byte) []string {
	if name, _ := located(locator); len(name) > 0 {
		names = append(names, a.name(name))
	}
	return names
}

// name returns a name in the form in which names are compared: "context
// parameters compare in any order", however a client writes them.
func (a *arena) name(b []byte) string {
	name := a.add(b)
	if bytes.IndexByte(b, '&') < 0 { // nothing to put in order, which is to cost nothing
		return name
	}
	return xds.CanonicalName(name)
}

// entry returns the key and the value of an entry of a map<string, string>.
func entry(b []byte) (key, value []byte, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return nil, nil, err
		}
		if f.typ != protowire.BytesType || f.num > 2 {
			continue
		}
		if !utf8.Valid(f.data) {
			return nil, nil, errUTF8
		}
		if f.num == 1 {
			key = f.data
		} else {
			value = f.data
		}
	}
	return key, value, nil
}

// decodeStatus merges an encoded google.rpc.Status into s.
func decodeStatus(b []byte, s *xds.Status) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.num == 1 && f.typ == protowire.VarintType:
			s.Code = int32(f.varint)
		case f.num == 2 && f.typ == protowire.BytesType:
			// Envoy cuts its message after 4,096 bytes, if need be within a
			// character. Breaking the stream for that would repeat for ever.
			s.Message = strings.ToValidUTF8(string(f.data), "\uFFFD")
		}
	}
	return nil
}

var types = func() map[string]*xds.Type {
	m := map[string]*xds.Type{}
	for _, t := range xds.Types() {
		m[t.URL] = t
	}
	return m
}()

// typeOf is xds.TypeOf without an allocation for the types of the table.
func typeOf(url []byte) *xds.Type {
	if t := types[string(url)]; t != nil || len(url) == 0 {
		return t
	}
	return xds.TypeOf(string(url))
}
