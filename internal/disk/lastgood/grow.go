package lastgood

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"slices"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/xds"
)

// A change of a large configuration is appended to its file, so the cost depends on the size of the change. Such a file has
// parts. The first part has the whole configuration, and each later part has a change. A part ends with an end record
// and the checksum of the file up to there. If the last part is incomplete, the parts before it are still valid.
const (
	formatParts = "chancery last good 5\n"
	minGrowing  = 1 << 14 // size of all bodies from which changes are appended
	maxParts    = 256     // the file is rewritten after that many: a read goes through all resources for each part
)

// More kinds of records.
const (
	end     = "end"     // the end of a part
	removed = "removed" // names of removed resources
)

var endRecord = record{kind: end}.encode()

// A growingFile is the state of a file to which changes can be appended.
type growingFile struct {
	content Config    // its content
	sum     hash.Hash // of the whole file
	size    int64
	most    int64 // size at which the file is rewritten
	left    int   // number of parts until the file is rewritten
}

// appendChange appends a change, and reports whether that succeeded. If not, the caller must rewrite the file.
func (g *growingFile) appendChange(path string, c Config) bool {
	if g == nil || g.left == 0 {
		return false
	}
	d, ok := g.content.change(c)
	if !ok {
		return false
	}
	var part bytes.Buffer
	if err := d.part(&part, g.sum); err != nil {
		return false
	}
	size := g.size + int64(part.Len())
	if size > min(g.most, MaxBytes) {
		return false
	}
	grew, _ := disk.Append(path, g.size, part.Bytes())
	g.content, g.size, g.left = c, size, g.left-1
	return grew
}

// part writes a part, and adds it to the checksum of the file.
func (c Config) part(out io.Writer, sum hash.Hash) error {
	w := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<16)
	if err := c.body(w); err != nil {
		return err
	}
	if _, err := w.Write(endRecord); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b := sum.Sum(nil)
	sum.Write(b)
	_, err := out.Write(b)
	return err
}

// canGrow reports whether changes are appended to the file of the configuration.
func (c Config) canGrow() bool {
	n := 0
	for _, g := range append(c.Groups, Group{Types: c.Types}) {
		for _, t := range g.Types {
			for _, r := range t.Resources {
				n += len(r.Body)
			}
		}
	}
	return n >= minGrowing
}

// change returns the difference of two configurations: the new and changed resources, and the names of
// removed ones. It returns false if a part cannot have the difference, or if a secret was removed: it
// must not stay in the file.
func (c Config) change(is Config) (Config, bool) {
	d := Config{At: is.At, Mark: is.Mark}
	if (c.Mark == "") != (is.Mark == "") || len(c.Groups) != len(is.Groups) || !slices.EqualFunc(c.Definitions, is.Definitions, func(a, b Definition) bool { return a.Path == b.Path && bytes.Equal(a.Data, b.Data) }) {
		return d, false
	}
	root, _, ok := Group{Types: c.Types, Gone: c.Gone, Peaks: c.Peaks}.change(Group{Types: is.Types, Gone: is.Gone, Peaks: is.Peaks})
	d.Types, d.Gone, d.Peaks = root.Types, root.Gone, root.Peaks
	for i, g := range is.Groups {
		if !ok || g.Name != c.Groups[i].Name {
			return d, false
		}
		var next Group
		var changed bool
		next, changed, ok = c.Groups[i].change(g)
		if changed {
			d.Groups = append(d.Groups, next)
		}
	}
	return d, ok
}

// change returns the difference of a group: see Config.change.
func (c Group) change(is Group) (d Group, changed, ok bool) {
	d = Group{Name: is.Name, Gone: is.Gone, Peaks: is.Peaks}
	if len(c.Types) != len(is.Types) {
		return d, false, false
	}
	for i, t := range is.Types {
		if t.URL != c.Types[i].URL || t.Withheld != c.Types[i].Withheld {
			return d, false, false
		}
		next, ok := c.Types[i].change(t)
		if !ok {
			return d, false, false
		}
		if next.Version != c.Types[i].Version || len(next.Resources)+len(next.removed) > 0 {
			d.Types = append(d.Types, next)
		}
	}
	same := slices.EqualFunc(c.Peaks, is.Peaks, func(a, b Peak) bool { return a.URL == b.URL && a.N == b.N && a.Until.Equal(b.Until) }) &&
		slices.EqualFunc(c.Gone, is.Gone, func(a, b Type) bool {
			return a.URL == b.URL && slices.EqualFunc(a.Resources, b.Resources, Resource.same)
		})
	return d, !same || d.Types != nil, !slices.ContainsFunc(c.Gone, func(t Type) bool { return !same && slices.ContainsFunc(t.Resources, hasSecret) })
}

// change compares the resources of both, which are sorted by name.
func (t Type) change(is Type) (Type, bool) {
	d := Type{Type: is.Type, Version: is.Version, Withheld: is.Withheld}
	secret := t.Is(xds.Secret) || t.Is(xds.Secret.Legacy())
	was, next := t.Resources, is.Resources
	for len(was)+len(next) > 0 {
		order := 1
		switch {
		case len(next) == 0:
			order = -1
		case len(was) > 0:
			order = cmp.Compare(was[0].Name, next[0].Name)
		}
		same := order == 0 && was[0].same(next[0])
		if order <= 0 {
			if !same && (secret || was[0].Secret) || len(was) > 1 && was[0].Name >= was[1].Name {
				return d, false
			}
			if order < 0 {
				d.removed = append(d.removed, was[0].Name)
			}
			was = was[1:]
		}
		if order >= 0 {
			if len(next) > 1 && next[0].Name >= next[1].Name {
				return d, false
			}
			if !same {
				d.Resources = append(d.Resources, next[0])
			}
			next = next[1:]
		}
	}
	return d, true
}

// same reports whether two resources are stored as equal.
func (r Resource) same(o Resource) bool {
	return r.Name == o.Name && (r.Resource == o.Resource || r.Sum == o.Sum && r.Version == o.Version && r.OnDemand == o.OnDemand) &&
		r.File == o.File && r.Line == o.Line && r.Col == o.Col && r.Path == o.Path && r.Secret == o.Secret
}

// apply applies a change to a configuration.
func (c *Config) apply(d Config) error {
	c.At, c.Mark = d.At, d.Mark
	root := Group{Types: c.Types}
	if err := root.apply(Group{Types: d.Types, Gone: d.Gone, Peaks: d.Peaks}); err != nil {
		return err
	}
	c.Gone, c.Peaks = root.Gone, root.Peaks
	for _, g := range d.Groups {
		i := slices.IndexFunc(c.Groups, func(o Group) bool { return o.Name == g.Name })
		if i < 0 {
			return errDamaged
		}
		if err := c.Groups[i].apply(g); err != nil {
			return err
		}
	}
	return nil
}

func (c *Group) apply(d Group) error {
	for _, t := range d.Types {
		i := slices.IndexFunc(c.Types, func(o Type) bool { return o.URL == t.URL })
		if i < 0 {
			return errDamaged
		}
		c.Types[i].apply(t)
	}
	c.Gone, c.Peaks = d.Gone, d.Peaks
	return nil
}

func (t *Type) apply(d Type) {
	all := make([]Resource, 0, len(t.Resources)+len(d.Resources))
	next, gone := d.Resources, d.removed
	for _, r := range t.Resources {
		for len(next) > 0 && next[0].Name < r.Name {
			all, next = append(all, next[0]), next[1:]
		}
		switch {
		case len(next) > 0 && next[0].Name == r.Name:
			all, next = append(all, next[0]), next[1:]
		case len(gone) > 0 && gone[0] == r.Name:
			gone = gone[1:]
		default:
			all = append(all, r)
		}
	}
	t.Version, t.Resources = d.Version, append(all, next...)
}

// parseGrown reads a file with parts.
func parseGrown(data []byte) (c Config, err error) {
	sum := sha256.New()
	at, from := len(formatParts), 0
	for at < len(data) {
		n := partSize(data[at:])
		to := at + n
		if n < 0 || len(data)-to < sha256.Size { // the last part is incomplete
			break
		}
		sum.Write(data[from:to])
		from = to + sha256.Size
		if !bytes.Equal(sum.Sum(nil), data[to:from]) {
			if from < len(data) {
				return Config{}, errDamaged
			}
			break
		}
		sum.Write(data[to:from])
		d, err := parseBody(data[at : to-len(endRecord)])
		if at == len(formatParts) {
			c = d
		} else if err == nil {
			err = c.apply(d)
		}
		if err != nil {
			return Config{}, err
		}
		at = from
	}
	if at == len(formatParts) {
		return Config{}, errDamaged
	}
	return c, nil
}

// partSize returns the size of a part without its checksum; -1 if the end record is missing.
func partSize(data []byte) int {
	for at := 0; at < len(data); {
		if bytes.HasPrefix(data[at:], endRecord) {
			return at + len(endRecord)
		}
		size, n := binary.Uvarint(data[at:])
		if n <= 0 || size > uint64(len(data)-at-n) {
			return -1
		}
		at += n + int(size)
	}
	return -1
}
