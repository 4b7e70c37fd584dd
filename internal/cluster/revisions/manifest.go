package revisions

import (
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/protoscan"
)

// The fields of a page and of a manifest. A manifest lists the pages of a node, or the manifests of
// the nodes below it, in the order of the positions. Each entry has its depth in the tree. The order
// and the depths determine the shape of a binary tree, so they identify each node.
const (
	pageItem = 1

	manifestPack  = 1 // hashes of the packs to which entries refer; number 0 is the pack of the manifest itself
	manifestPage  = 2 // depth, pack, offset, length, each a varint
	manifestBelow = 3 // the same fields, for a manifest
)

// manifestMost is the maximum number of pages in a manifest.
const manifestMost = 256

func encodePage(page []*entry) []byte {
	var b []byte
	for _, e := range page {
		b = appendBytes(b, pageItem, e.raw)
	}
	return b
}

// A child is an entry of a manifest.
type child struct {
	depth int
	below bool // the entry is a manifest, not a page
	at    place
}

// cut calls f with the nodes that a manifest of n lists, in order. If n has few pages, these are the
// pages. Otherwise they are the largest nodes below n that have few pages.
func (n *node) cut(depth int, f func(depth int, n *node)) {
	few := 1
	if n.pages > manifestMost {
		few = manifestMost
	}
	var down func(depth int, n *node)
	down = func(depth int, n *node) {
		if n.isPage() || n.pages <= few {
			f(depth, n)
			return
		}
		down(depth+1, n.kids[0])
		down(depth+1, n.kids[1])
	}
	down(depth, n)
}

// encodeManifest encodes children. Children in the same pack as the manifest have a zero pack.
func encodeManifest(children []child) []byte {
	number := map[hash]uint64{{}: 0}
	var head, body []byte
	for _, c := range children {
		i, ok := number[c.at.pack]
		if !ok {
			i = uint64(len(number))
			number[c.at.pack] = i
			head = appendBytes(head, manifestPack, c.at.pack[:])
		}
		field := protowire.Number(manifestPage)
		if c.below {
			field = manifestBelow
		}
		var b []byte
		for _, n := range []uint64{uint64(c.depth), i, uint64(c.at.offset), uint64(c.at.n)} {
			b = protowire.AppendVarint(b, n)
		}
		body = appendBytes(body, field, b)
	}
	return append(head, body...)
}

// decodeManifest decodes the children of a manifest that is in the pack self.
func decodeManifest(b []byte, self hash) (children []child, err error) {
	packs := []hash{self}
	for f, e := range protoscan.Fields(b) {
		if e != nil {
			return nil, e
		}
		switch f.Number {
		case manifestPack:
			if len(f.Bytes) != sha256.Size {
				return nil, ErrDamaged
			}
			packs = append(packs, hash(f.Bytes))
		case manifestPage, manifestBelow:
			var n [4]uint64
			for i, rest := 0, f.Bytes; i < len(n); i++ {
				v, w := protowire.ConsumeVarint(rest)
				if w < 0 || v > 1<<31 {
					return nil, ErrDamaged
				}
				n[i], rest = v, rest[w:]
			}
			if n[0] > 64 || n[1] >= uint64(len(packs)) {
				return nil, ErrDamaged
			}
			children = append(children, child{int(n[0]), f.Number == manifestBelow, place{packs[n[1]], uint32(n[2]), uint32(n[3])}})
		}
	}
	return children, nil
}

// assemble builds a node of the given depth from the nodes that a manifest lists.
func assemble(depth int, children []child, nodes []*node) (*node, error) {
	var grow func(depth int) *node // returns nil if the depths do not form a tree
	grow = func(depth int) *node {
		if len(children) == 0 || children[0].depth < depth {
			return nil
		}
		if children[0].depth == depth {
			n := nodes[0]
			children, nodes = children[1:], nodes[1:]
			return n
		}
		a := grow(depth + 1)
		if a == nil {
			return nil
		}
		b := grow(depth + 1)
		if b == nil {
			return nil
		}
		return join(a, b)
	}
	n := grow(depth)
	if n == nil || len(children) > 0 {
		return nil, fmt.Errorf("the entries of a manifest do not form a tree: %w", ErrDamaged)
	}
	return n, nil
}

// tree stores the missing parts of a tree. It returns the places of its manifest, and of the
// manifests of the nodes below. The map known has the manifests that are already stored. The places
// are valid after settle.
func (p *packer) tree(root *node, known map[*node]*place) (top *place, below map[*node]*place) {
	p.pages(root)
	top, below = &place{}, map[*node]*place{}
	if root.pages > manifestMost {
		root.cut(0, func(depth int, n *node) {
			switch at := known[n]; {
			case n.isPage():
			case at != nil:
				below[n] = at
			default:
				below[n] = &place{}
				p.put(below[n], func() []byte { return encodeManifest(n.children(depth, nil)) })
			}
		})
	}
	p.put(top, func() []byte { return encodeManifest(root.children(0, below)) })
	return top, below
}

func (n *node) children(depth int, below map[*node]*place) (all []child) {
	n.cut(depth, func(depth int, n *node) {
		if n.isPage() {
			all = append(all, child{depth: depth, at: n.at})
		} else {
			all = append(all, child{depth: depth, at: *below[n], below: true})
		}
	})
	return all
}

// pages stores the pages that are not stored yet.
func (p *packer) pages(n *node) {
	switch {
	case !n.isPage():
		p.pages(n.kids[0])
		p.pages(n.kids[1])
	case n.at == (place{}):
		p.put(&n.at, func() []byte { return encodePage(n.page) })
	}
}
