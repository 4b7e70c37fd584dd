// Package wire makes resources from protobuf messages, and encodes and decodes the messages of the xDS protocol.
// It does not link the generated messages of Envoy, performs no I/O and starts no goroutine.
//
// # For every program
//
// [FromMessage] makes an [xds.Resource] from a message, and [NewResource] makes a resource with a
// given type or name. [TypeOf] returns the [xds.Type] of a message. [Metadata] reads a node's
// metadata, for example in a selector of groups.
//
// # For transports
//
// [Decoder], [Encode], [EncodeRequest] and [DecodeResponse] translate between the protocol's
// messages and the types of package xds. Package server uses these functions. They do not decode
// resources, except the few fields that names and references need ([Refs]).
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

// ErrLimit is the error inside each [xds.LimitError] that [Decoder.Decode] returns for a valid
// request above a limit: test with [errors.Is].
var ErrLimit = errors.New("limit exceeded")

// limitError returns the error of a request that exceeds a limit.
func limitError(limit xds.Limit, format string, args ...any) error {
	return &xds.LimitError{Limit: limit, Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrLimit)}
}

// A Decoder decodes the requests of one stream, in order. A Decoder is not safe for concurrent use.
// The zero value decodes SotW requests without limits.
//
// The names and versions of a request share one copy of their bytes, so that a request with 1,000
// names costs two allocations. Clone a name before you keep it. Otherwise the name keeps the memory
// of the whole copy in use.
type Decoder struct {
	Variant xds.Variant

	// MaxNames is the largest length of each list of names in a request. A longer list is ErrLimit. Zero
	// means no limit.
	MaxNames int

	// MaxNode is the largest size of a node in bytes. A larger node is ErrLimit. Zero means no
	// limit.
	MaxNode int

	// MaxTypeURL is the largest length of a type URL in bytes. A longer URL is ErrLimit. Zero means
	// no limit.
	MaxTypeURL int

	node      *xds.Node  // the node of the first request; nil before that request
	lastLists []nameList // SotW: the names of the last request of each type, the newest request last
}

// A nameList is a hash of the list of names in a request. Nearly every ACK repeats the list.
type nameList struct {
	typ  *xds.Type
	size int
	hash uint64
}

// maxLists is the number of types for which the last list of names is remembered.
const maxLists = 64

var seed = maphash.MakeSeed()

// repeatsNames reports whether the last request of the type had the same bytes of names. It
// remembers a hash of the bytes of this request. The argument names is empty if the request has no
// names, or has other fields between the names.
func (d *Decoder) repeatsNames(t *xds.Type, names []byte) bool {
	if t == nil { // the request may belong to any type, so all remembered lists may be old
		d.lastLists = nil
		return false
	}
	var was nameList
	if at := slices.IndexFunc(d.lastLists, func(s nameList) bool { return s.typ.Is(t) }); at >= 0 {
		was = d.lastLists[at]
		d.lastLists = slices.Delete(d.lastLists, at, at+1)
	}
	if len(names) == 0 {
		return false
	}
	is := nameList{t, len(names), maphash.Bytes(seed, names)}
	if len(d.lastLists) == maxLists {
		d.lastLists = slices.Delete(d.lastLists, 0, 1)
	}
	d.lastLists = append(d.lastLists, is)
	return is.size == was.size && is.hash == was.hash
}

// Decode decodes a DiscoveryRequest or a DeltaDiscoveryRequest. It keeps no reference to b.
//
// Node: "Only the first message on a stream is guaranteed to carry the node identifier." Envoy repeats the node in
// each request (61 KB). In later requests Decode does not decode it, and Node is nil. If the id differs
// from that of the first request, Node has only the new id.
//
// Names: names in resource locators ("alternative to resource_names") are added to the names.
// Otherwise a request that uses locators would subscribe to everything. The dynamic parameters of
// locators choose "between multiple variants of the same resource". This server has only one
// variant of each resource, without constraints, which matches all parameters. Names are canonical
// ([xds.CanonicalName]).
//
// SameNames: if a SotW request repeats the names of the last request of its type byte by byte,
// Names is empty. Each ACK repeats the names, and a request may have 100,000 names. The Decoder
// remembers only a hash of them.
//
// A type that is not set is nil. If initial_resource_versions has a key twice, the result has both
// entries; the later entry counts.
func (d *Decoder) Decode(b []byte) (req xds.Request, err error) {
	l := &layouts[d.Variant]
	c, err := scan(l, b)
	if err != nil {
		return req, fmt.Errorf("malformed %s: %w", l.message, err)
	}
	if n := max(c.names, c.subscribe, c.unsubscribe, c.initial); d.MaxNames > 0 && n > d.MaxNames {
		return req, limitError(xds.LimitNames, "%s with %d names, more than %d", l.message, n, d.MaxNames)
	}
	if d.MaxNode > 0 && c.node > d.MaxNode {
		return req, limitError(xds.LimitNode, "%s with a node of %d bytes, more than %d", l.message, c.node, d.MaxNode)
	}
	if d.MaxTypeURL > 0 && len(c.url) > d.MaxTypeURL {
		return req, limitError(xds.LimitTypeURL, "%s with a type_url of %d bytes, more than %d", l.message, len(c.url), d.MaxTypeURL)
	}
	req.Type = typeOf(c.url)
	var rest []byte
	if d.Variant == xds.SotW && d.repeatsNames(req.Type, c.namesRange(b)) {
		req.SameNames = true
		b, rest = b[:c.from], b[c.to:]
		c.names, c.listed = 0, 0
	}

	first := d.node == nil
	if first {
		d.node = &xds.Node{}
	}
	req.Names = withCapacity[string](c.names)
	req.Subscribe = withCapacity[string](c.subscribe)
	req.Unsubscribe = withCapacity[string](c.unsubscribe)
	req.Initial = withCapacity[xds.Version](c.initial)
	a, own := newArena(c.listed), newArena(c.own)
	var version build
	var id []byte // id of the node in a later request; nil: none
	for len(b)+len(rest) > 0 {
		if len(b) == 0 {
			b, rest = rest, nil
		}
		var f field
		f, b, _ = next(b) // scan has already checked the message
		if f.typ != protowire.BytesType {
			continue // fields with a wrong wire type are unknown fields
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
			req.Names = a.addLocator(req.Names, f.data)
		case l.locate:
			req.Subscribe = a.addLocator(req.Subscribe, f.data)
		case l.unlocate:
			req.Unsubscribe = a.addLocator(req.Unsubscribe, f.data)
		case l.initial:
			key, value, _ := entry(f.data)
			req.Initial = append(req.Initial, xds.Version{Name: a.name(key), Version: a.add(value)})
		case l.failure:
			// "Presence of error_detail" makes the request a NACK, even if the field is empty.
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

// A layout has the field numbers of a request message. Zero means that the message has no such
// field.
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

// counts has the numbers and the total sizes of the strings in a request.
type counts struct {
	own, listed, node                      int // bytes of version and nonce, of all lists of names, of the node
	names, subscribe, unsubscribe, initial int
	url                                    []byte

	from, to  int  // the range of the names in the message
	scattered bool // other fields are between the names
}

// namesRange returns the part of the message that has all names and nothing else, or nil if there is no such part.
func (c *counts) namesRange(b []byte) []byte {
	if c.scattered {
		return nil
	}
	return b[c.from:c.to]
}

// noteNames records the position of names.
func (c *counts) noteNames(from, to int) {
	if c.to == 0 {
		c.from, c.to = from, from
	}
	c.scattered = c.scattered || c.to != from
	c.to = to
}

// countShort counts how many fields with this number and less than 128 bytes are at the start of b,
// and returns their total size. The number must be below 16. It is fast for long lists of names,
// which every ACK repeats.
func countShort(b []byte, num protowire.Number) (n, size int) {
	tag := byte(num)<<3 | byte(protowire.BytesType)
	for size+2 <= len(b) && b[size] == tag && b[size+1] < 128 && size+2+int(b[size+1]) <= len(b) {
		size += 2 + int(b[size+1])
		n++
	}
	return n, size
}

// scan checks and measures the top-level fields of a request.
func scan(l *layout, b []byte) (c counts, err error) {
	for all := len(b); len(b) > 0; {
		at := all - len(b)
		if n, size := countShort(b, l.names); n > 0 && l.names > 0 {
			c.noteNames(at, at+size)
			c.names += n
			c.listed += size - 2*n
			if !utf8.Valid(b[:size]) { // tags and lengths are ASCII, so this checks all names
				return c, fmt.Errorf("field %d: %w", l.names, errUTF8)
			}
			b = b[size:]
			continue
		}
		var f field
		f, b, err = next(b)
		if err != nil {
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
			c.noteNames(at, all-len(b))
		case l.subscribe:
			c.subscribe++
			c.listed += len(text)
		case l.unsubscribe:
			c.unsubscribe++
			c.listed += len(text)
		case l.locators:
			text, err = c.countLocator(&c.names, text)
			c.scattered = true
		case l.locate:
			text, err = c.countLocator(&c.subscribe, text)
		case l.unlocate:
			text, err = c.countLocator(&c.unsubscribe, text)
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

// countLocator counts the name of a resource locator and returns it.
func (c *counts) countLocator(names *int, locator []byte) (name []byte, err error) {
	name, err = locatorName(locator)
	if len(name) > 0 {
		*names++
		c.listed += len(name)
	}
	return name, err
}

// locatorName returns the name of a resource locator. A locator of the older type
// udpa.core.v1.ResourceLocator has a number in this field. Such a locator has no name.
func locatorName(b []byte) (name []byte, err error) {
	for len(b) > 0 {
		var f field
		f, b, err = next(b)
		if err != nil {
			return nil, err
		}
		if f.num != 1 || f.typ != protowire.BytesType {
			continue
		}
		name = f.data
		if !utf8.Valid(name) {
			return nil, errUTF8
		}
	}
	return name, nil
}

// addLocator appends the name of a resource locator, if it is not empty.
func (a *arena) addLocator(names []string, locator []byte) []string {
	if name, _ := locatorName(locator); len(name) > 0 {
		names = append(names, a.name(name))
	}
	return names
}

// name returns a name in canonical form, because "context parameters compare in any order".
func (a *arena) name(b []byte) string {
	name := a.add(b)
	if bytes.IndexByte(b, '&') < 0 { // a cheap test: without "&" there are no parameters to sort
		return name
	}
	return xds.CanonicalName(name)
}

// entry returns the key and the value of a map<string, string> entry.
func entry(b []byte) (key, value []byte, err error) {
	for len(b) > 0 {
		var f field
		f, b, err = next(b)
		if err != nil {
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
			// Envoy cuts its message after 4,096 bytes, possibly within a character. An error would
			// end the stream, and the client would send the same message again.
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

// typeOf does the same as [xds.TypeOf], without an allocation for the types of the table.
func typeOf(url []byte) *xds.Type {
	if t := types[string(url)]; t != nil || len(url) == 0 {
		return t
	}
	return xds.TypeOf(string(url))
}
