package revisions

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/protoscan"
	"github.com/chancery-xds/chancery/xds"
)

// A Key identifies an item in a snapshot.
type Key struct {
	Group string
	Type  string // the type URL; "": the definition of the group
	Name  string // "": the version of the type
}

// String returns the key for people.
func (k Key) String() string {
	switch {
	case k.Type == "":
		return fmt.Sprintf("definition of group %q", k.Group)
	case k.Name == "":
		return fmt.Sprintf("version of %s in group %q", xds.TypeOf(k.Type), k.Group)
	}
	return fmt.Sprintf("%s %q in group %q", xds.TypeOf(k.Type), k.Name, k.Group)
}

// Compare orders keys by group, type and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Group, o.Group), cmp.Compare(k.Type, o.Type), cmp.Compare(k.Name, o.Name))
}

// position is the place of a key in the tree: the first 64 bits of the key's hash.
func (k Key) position() uint64 {
	h := sha256.New()
	for _, s := range []string{k.Group, k.Type, k.Name} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// An Item is one part of a configuration: a resource in a group, the definition of a group, or the
// version of a type in a group. Items read from a repository must not be changed.
type Item struct {
	Group string // not empty

	// Resource is a resource of the group, sealed ([xds.Resource.Seal]); or nil. Its references are not
	// stored: see [Options.Prepare].
	Resource *xds.Resource

	// Type is the URL of a type, and Version is the version that the source gives to this type. A
	// resource has its own version instead. An item without Resource and Type is the definition of
	// the group: Definition is the content of its file.
	Type       string
	Version    string
	Definition []byte

	Secret bool  // it contains a secret
	Place  Place // place in the source files when the item was set

	// Since is the number of the revision that set the item. Commit sets it.
	Since Number
}

// A Place is a position in the author's files. The zero value means unknown.
type Place struct {
	File      string
	Line, Col int    // from 1; 0: unknown
	Path      string // path of the field; "": the whole resource
}

// Key returns the key of the item.
func (it *Item) Key() Key {
	if r := it.Resource; r != nil {
		return Key{Group: it.Group, Type: r.Type.URL, Name: r.Name}
	}
	return Key{Group: it.Group, Type: it.Type}
}

// same reports whether two items of a key are equal, apart from their places.
func (it *Item) same(o *Item) bool {
	if it.Secret != o.Secret {
		return false
	}
	a, b := it.Resource, o.Resource
	if a == nil {
		return it.Version == o.Version && bytes.Equal(it.Definition, o.Definition)
	}
	return a.Sum == b.Sum && a.Version == b.Version && a.OnDemand == b.OnDemand
}

// check returns the reason why an item cannot be stored, or nil.
func (it *Item) check() error {
	switch {
	case it.Group == "":
		return fmt.Errorf("%s: a group has no name", it.Key())
	case it.Resource == nil:
		return nil
	case it.Type != "" || it.Version != "" || it.Definition != nil:
		return fmt.Errorf("group %q: an item is a resource or something else, not both", it.Group)
	}
	if err := it.Resource.Check(); err != nil {
		return fmt.Errorf("group %q: %w", it.Group, err)
	}
	if it.Resource.Changed() {
		return fmt.Errorf("%s was changed after it was sealed: call Seal after its fields are set", it.Key())
	}
	return nil
}

// The fields of an item in the protobuf encoding. Later versions add new numbers, which older versions
// skip. The meaning of a number never changes.
const (
	itemGroup, itemType, itemName, itemBody, itemAlias, itemTTL, itemOnDemand, itemVersion = 1, 2, 3, 4, 5, 6, 7, 8
	itemPiece, itemFile, itemLine, itemCol, itemPath, itemSecret, itemSince                = 9, 10, 11, 12, 13, 14, 15
)

// inline is the maximum size of a body that is stored inside its item, in bytes.
const inline = 4 << 10

// encode encodes an item. If pieces are given, they replace the body.
func (it *Item) encode(pieces []place) []byte {
	k := it.Key()
	body, version := it.Definition, it.Version
	r := it.Resource
	if r != nil {
		// A version that equals the hash of the content is not stored: each reader computes it.
		body, version = r.Body, r.Version
		if version == r.Sum.String() {
			version = ""
		}
	}
	if pieces != nil {
		body = nil
	}
	b := make([]byte, 0, len(body)+len(k.Group)+len(k.Type)+len(k.Name)+len(it.Place.File)+64)
	b = appendString(b, itemGroup, k.Group)
	b = appendString(b, itemType, k.Type)
	b = appendString(b, itemName, k.Name)
	if len(body) > 0 {
		b = appendBytes(b, itemBody, body)
	}
	if r != nil {
		for _, a := range r.Aliases {
			b = appendBytes(b, itemAlias, []byte(a))
		}
		b = appendNumber(b, itemTTL, uint64(r.TTL))
		b = appendFlag(b, itemOnDemand, r.OnDemand)
	}
	b = appendString(b, itemVersion, version)
	for _, p := range pieces {
		b = appendBytes(b, itemPiece, p.encode())
	}
	b = appendString(b, itemFile, it.Place.File)
	b = appendNumber(b, itemLine, uint64(it.Place.Line))
	b = appendNumber(b, itemCol, uint64(it.Place.Col))
	b = appendString(b, itemPath, it.Place.Path)
	b = appendFlag(b, itemSecret, it.Secret)
	return appendNumber(b, itemSince, uint64(it.Since))
}

// decodeItem decodes an item. The result refers to b. If the body is stored in pieces, the caller
// must pass it to finish. decodeItem does not check the item. The key k is the stored one: an earlier version
// stored names that are not canonical, and the item has the canonical name.
func decodeItem(b []byte) (k Key, it *Item, pieces []place, finish func(body []byte), err error) {
	it = &Item{}
	var r xds.Resource
	var body []byte
	for f, e := range protoscan.Fields(b) {
		if e != nil {
			return k, nil, nil, nil, e
		}
		switch f.Number {
		case itemGroup:
			k.Group = string(f.Bytes)
		case itemType:
			k.Type = string(f.Bytes)
		case itemName:
			k.Name = string(f.Bytes)
		case itemBody:
			body = f.Bytes
		case itemAlias:
			r.Aliases = append(r.Aliases, xds.CanonicalName(string(f.Bytes)))
		case itemTTL:
			r.TTL = time.Duration(f.Varint)
		case itemOnDemand:
			r.OnDemand = f.Varint != 0
		case itemVersion:
			it.Version = string(f.Bytes)
		case itemPiece:
			p, ok := decodePlace(f.Bytes)
			if !ok {
				return k, nil, nil, nil, fmt.Errorf("reference to a piece of a body: %w", ErrDamaged)
			}
			pieces = append(pieces, p)
		case itemFile:
			it.Place.File = string(f.Bytes)
		case itemLine:
			it.Place.Line = int(f.Varint)
		case itemCol:
			it.Place.Col = int(f.Varint)
		case itemPath:
			it.Place.Path = string(f.Bytes)
		case itemSecret:
			it.Secret = f.Varint != 0
		case itemSince:
			it.Since = Number(f.Varint)
		}
	}
	it.Group = k.Group
	if k.Name == "" {
		it.Type = k.Type
		finish = func(body []byte) { it.Definition = body }
	} else {
		version := it.Version
		it.Version = ""
		res := &xds.Resource{Stamp: &xds.Stamp{Name: xds.CanonicalName(k.Name)}, Type: xds.TypeOf(k.Type), Aliases: r.Aliases, TTL: r.TTL, OnDemand: r.OnDemand}
		it.Resource = res
		finish = func(body []byte) {
			res.Body = body
			res.Seal(version)
		}
	}
	if pieces == nil {
		finish(body)
	}
	return k, it, pieces, finish, nil
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// appendString appends a field unless the value is empty. appendNumber and appendFlag do the same.
func appendString(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendFlag(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return appendNumber(b, num, 1)
}
