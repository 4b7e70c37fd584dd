package lastgood

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/chancery-xds/chancery/xds"
)

// The first lines of the formats. Old formats are still read. A configuration without groups or without a mark is still
// written in an old format, so that an older Chancery can read it.
const (
	formatMark     = "chancery last good 4\n" // has a mark
	formatNoMark   = "chancery last good 3\n" // has groups
	formatNoGroups = "chancery last good 2\n" // has removed resources
	formatFirst    = "chancery last good 1\n" // has none of these
)

// A Config is a configuration that was served. It is immutable. The references of its resources are
// not stored.
type Config struct {
	At    time.Time // when it was committed
	Types []Type
	Gone  []Type // recently removed resources, which clients may still have
	Peaks []Peak // recent counts, by type

	Groups      []Group // all groups but that of the root, which has the fields above
	Definitions []Definition

	Mark string // identifies the configuration for its source; "": the source has none
}

// A Group is the configuration of the nodes of a group.
type Group struct {
	Name  string
	Types []Type
	Gone  []Type
	Peaks []Peak
}

// A Definition is a group file, and its path below the directory, with slashes.
type Definition struct {
	Path string
	Data []byte
}

// A Peak is the number of resources that a type had until a time.
type Peak struct {
	URL   string
	N     int
	Until time.Time
}

// A Type has all resources of one type.
type Type struct {
	*xds.Type
	Version   string // as set by its source; empty: the hash of its content
	Withheld  bool   // some resources are not stored, so the type is not fully known
	Resources []Resource

	removed []string // names of removed resources, sorted; only in a change (grow.go)
}

// A Resource is a resource and its place in the files.
type Resource struct {
	*xds.Resource
	File      string
	Line, Col int // zero: unknown
	Path      string
	Secret    bool // it contains a secret; this field is not stored
}

// chunk is how many resources one message of a file has.
const chunk = 256

// A file has the first line, the time, messages of resources with their lengths (record.go), and the checksum of all of
// that. Changes of a large configuration are appended to its file (grow.go).

// write writes a configuration. It returns the state of the file if changes can be appended to it.
func (c Config) write(out io.Writer) (*growingFile, error) {
	sum := sha256.New()
	if c.canGrow() {
		sized := &limitedWriter{out, MaxBytes}
		if _, err := io.MultiWriter(sized, sum).Write([]byte(formatParts)); err != nil {
			return nil, err
		}
		err := c.part(sized, sum)
		size := MaxBytes - sized.left
		return &growingFile{c, sum, size, size + size/4, maxParts}, err
	}
	w := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<16)
	first := formatMark
	switch {
	case c.Mark != "":
	case len(c.Groups) == 0 && len(c.Definitions) == 0:
		first = formatNoGroups
	default:
		first = formatNoMark
	}
	if _, err := w.WriteString(first); err != nil {
		return nil, err
	}
	if err := c.body(w); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	_, err := out.Write(sum.Sum(nil))
	return nil, err
}

// body writes the time and the records.
func (c Config) body(w *bufio.Writer) error {
	if _, err := protodelim.MarshalTo(w, timestamppb.New(c.At)); err != nil {
		return err
	}
	if err := (Group{Types: c.Types, Gone: c.Gone, Peaks: c.Peaks}).write(w); err != nil {
		return err
	}
	if c.Mark != "" {
		if err := (record{kind: mark, version: c.Mark}).write(w); err != nil {
			return err
		}
	}
	for _, d := range c.Definitions {
		if err := d.encode().write(w); err != nil {
			return err
		}
	}
	for _, g := range c.Groups {
		if err := (record{kind: group, version: g.Name}).write(w); err != nil {
			return err
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	return nil
}

// write writes the records of a group.
func (c Group) write(w *bufio.Writer) error {
	for i, t := range slices.Concat(c.Types, c.Gone) {
		rest := t.Resources
		for first := true; first || len(rest) > 0; first = false {
			n := min(chunk, len(rest))
			m := record{url: t.URL, version: t.Version}
			switch {
			case i >= len(c.Types):
				m.kind = gone
			case t.Withheld:
				m.kind = withheld
			}
			for _, r := range rest[:n] {
				b, err := r.encode(t.URL)
				if err != nil {
					return err
				}
				m.resources = append(m.resources, b)
			}
			if err := m.write(w); err != nil {
				return err
			}
			rest = rest[n:]
		}
		if len(t.removed) > 0 {
			m := record{url: t.URL, kind: removed}
			for _, name := range t.removed {
				m.resources = append(m.resources, appendString(nil, resourceName, name))
			}
			if err := m.write(w); err != nil {
				return err
			}
		}
	}
	for _, p := range c.Peaks {
		if err := p.encode().write(w); err != nil {
			return err
		}
	}
	return nil
}

// The kinds of records; "" is a record of served resources.
const (
	withheld   = "withheld"   // a type with resources that are not stored
	gone       = "gone"       // recently removed resources
	peak       = "peak"       // a recent count of a type
	group      = "group"      // the following records are of this group
	definition = "definition" // a group file
	mark       = "mark"       // identifies the configuration for its source
)

// errDamaged means that a file does not have the content that was written.
var errDamaged = errors.New("the file is damaged: its checksum does not match")

// parse reads the output of write.
func parse(data []byte) (Config, error) {
	if bytes.HasPrefix(data, []byte(formatParts)) {
		return parseGrown(data)
	}
	var body []byte
	ok := false
	for _, first := range []string{formatMark, formatNoMark, formatNoGroups, formatFirst} {
		body, ok = bytes.CutPrefix(data, []byte(first))
		if ok {
			break
		}
	}
	if !ok {
		return Config{}, errors.New("the file has a format that this version of Chancery cannot read")
	}
	if len(body) < sha256.Size {
		return Config{}, errDamaged
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return Config{}, errDamaged
	}
	return parseBody(body[:len(body)-sha256.Size])
}

// parseBody reads the output of body.
func parseBody(body []byte) (Config, error) {
	var c Config
	in := bytes.NewReader(body)
	var at timestamppb.Timestamp
	if err := (protodelim.UnmarshalOptions{MaxSize: -1}).UnmarshalFrom(in, &at); err != nil {
		return Config{}, err
	}
	c.At = at.AsTime()
	all := []Group{{}} // the root's first
	for in.Len() > 0 {
		m, err := readRecord(in)
		switch {
		case err != nil:
			return Config{}, err
		case m.kind == definition:
			d, err := decodeDefinition(m)
			if err != nil {
				return Config{}, err
			}
			c.Definitions = append(c.Definitions, d)
		case m.kind == mark:
			c.Mark = m.version
		case m.kind == group:
			all = append(all, Group{Name: m.version})
		default:
			if err := all[len(all)-1].addRecord(m); err != nil {
				return Config{}, err
			}
		}
	}
	c.Types, c.Gone, c.Peaks, c.Groups = all[0].Types, all[0].Gone, all[0].Peaks, all[1:]
	if len(c.Groups) == 0 {
		c.Groups = nil
	}
	return c, nil
}

// addRecord adds the content of a record of the group.
func (c *Group) addRecord(m record) error {
	types := &c.Types
	switch m.kind {
	case gone:
		types = &c.Gone
	case peak:
		p, err := decodePeak(m)
		if err != nil {
			return err
		}
		c.Peaks = append(c.Peaks, p)
		return nil
	}
	n := len(*types)
	if m.kind == removed {
		if n == 0 || (*types)[n-1].URL != m.url {
			return errDamaged
		}
		for _, b := range m.resources {
			r, err := decode(nil, b)
			if err != nil {
				return err
			}
			(*types)[n-1].removed = append((*types)[n-1].removed, r.Name)
		}
		return nil
	}
	if n == 0 || (*types)[n-1].URL != m.url {
		*types = append(*types, Type{Type: xds.TypeOf(m.url), Version: m.version, Withheld: m.kind == withheld})
		n++
	}
	for _, b := range m.resources {
		r, err := decode((*types)[n-1].Type, b)
		if err != nil {
			return err
		}
		(*types)[n-1].Resources = append((*types)[n-1].Resources, r)
	}
	return nil
}

// A limitedWriter is a writer that fails after a number of bytes.
type limitedWriter struct {
	io.Writer
	left int64
}

var errLarge = errors.New("the configuration is too large to be stored")

func (c *limitedWriter) Write(b []byte) (int, error) {
	c.left -= int64(len(b))
	if c.left < 0 {
		return 0, errLarge
	}
	return c.Writer.Write(b)
}
