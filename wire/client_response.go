package wire

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// ResponseOptions of [DecodeResponse]. The zero value is ready to use.
type ResponseOptions struct {
	// Only is the type of a stream that is not aggregated: responses that name none have it, and
	// one of another type is malformed. Nil: the stream is aggregated.
	Only *xds.Type

	// Name returns the name that is in the message of a resource, "" if there is none. It is
	// asked for types that the table does not list ([xds.Type.Known]), where nothing around the
	// message says the name. Nil: such resources are malformed.
	Name func(t *xds.Type, body []byte) string

	// Place says where an entry of the field resources is from, for errors: "clusters.yaml:3:5".
	// Nil: they say "resources[0]" of what has no name.
	Place func(at int) string

	// Memory is of the stream. A SotW response has mostly the same resources as the one before:
	// these are given again and not copied, which costs little. Nil: all is made anew.
	Memory *Memory
}

// maxMalformed is how many resources of one response are said to be malformed, each by itself. A
// response of nothing but such resources would be many times as large as its message.
const maxMalformed = 100

// removedNames is the field of a delta response with names that have parameters.
const removedNames = 8

// DecodeResponse decodes a DiscoveryResponse or a DeltaDiscoveryResponse, as a client gets it. It
// keeps no reference to b. What it returns is in the message's order, and what is told twice is
// there twice.
//
// An error says that the message is none. A resource in it that cannot be read, has another type
// than the response, or no name is an [xds.MalformedError] in Malformed, and the others are there.
//
// A resource has its version from the protocol's Resource around it, else the hash of its content.
// A Resource without a body is a beat, if it has a version or a TTL: that version is "" where the
// server does not repeat it, as go-control-plane over SotW. If it has neither, it tells that the
// name does not exist. Names are canonical ([xds.CanonicalName]); an alias is there once, and a
// resource with more than 10,000 is malformed. A response without a type has
// Only, and without that a type of URL "", which no client asks for.
func DecodeResponse(v xds.Variant, b []byte, o ResponseOptions) (*xds.Response, error) {
	message := "DiscoveryResponse"
	if v == xds.Delta {
		message = "DeltaDiscoveryResponse"
	}
	d := responseDecoder{v: v, o: o, r: &xds.Response{Changes: &xds.Changes{}}}
	if err := d.head(b); err != nil {
		return nil, fmt.Errorf("malformed %s: %w", message, err)
	}
	if o.Only != nil && !d.r.Type.Is(o.Only) {
		d.malformed("", fmt.Errorf("the response is of type %q, on a stream of %s", d.r.Type.URL, o.Only.URL))
		d.r.Type = o.Only
		return d.r, nil
	}
	remembers := o.Memory != nil && v == xds.SotW
	if remembers {
		d.begin(o.Memory, d.r.Type)
	}
	d.content(b)
	if remembers {
		o.Memory.keep(d.r, d.memos)
	}
	if d.more > 0 {
		d.r.Malformed = append(d.r.Malformed, &xds.MalformedError{Err: fmt.Errorf("and %d more", d.more)})
	}
	d.r.TTL = tellsTTL(d.r.Changes)
	return d.r, nil
}

// A responseDecoder is at work on one response.
type responseDecoder struct {
	v    xds.Variant
	o    ResponseOptions
	r    *xds.Response
	more int // malformed resources that are not listed
	recall
}

func (d *responseDecoder) malformed(name string, err error) {
	if len(d.r.Malformed) == maxMalformed {
		d.more++
		return
	}
	d.r.Malformed = append(d.r.Malformed, &xds.MalformedError{Name: name, Err: err})
}

// head reads what is said of the whole response, which may stand behind the resources.
func (d *responseDecoder) head(b []byte) error {
	var version, url, nonce []byte
	var resources, removed int
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		if b = rest; f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case fieldVersion:
			version = f.data
		case fieldTypeURL:
			url = f.data
		case fieldNonce:
			nonce = f.data
		case fieldResources:
			resources++
			continue
		case fieldRemoved:
			removed++
			continue
		default:
			continue
		}
		if !utf8.Valid(f.data) {
			return fmt.Errorf("field %d: %w", f.num, errUTF8)
		}
	}
	d.r.Version, d.r.Nonce = string(version), string(nonce)
	if d.r.Type = typeOf(url); d.r.Type == nil {
		if d.r.Type = d.o.Only; d.r.Type == nil {
			d.r.Type = xds.TypeOf("")
		}
	}
	d.r.Upserts = grown[*xds.Resource](resources)
	if d.v == xds.Delta {
		d.r.Removed = grown[string](removed)
	}
	return nil
}

// content reads the resources, and what is said of others.
func (d *responseDecoder) content(b []byte) {
	delta := d.v == xds.Delta
	errors := fieldErrors + 2*protowire.Number(d.v)
	var at, removed, failed int
	for len(b) > 0 {
		var f field
		f, b, _ = next(b) // head has seen it
		switch {
		case f.typ != protowire.BytesType:
		case f.num == fieldResources:
			d.resource(at, f.data)
			at++
		case delta && f.num == fieldRemoved:
			d.remove(removed, f.data, nil)
			removed++
		case delta && f.num == removedNames:
			name, err := located(f.data) // a ResourceName has it where a ResourceLocator does
			d.remove(removed, name, err)
			removed++
		case f.num == errors:
			d.failure(failed, f.data)
			failed++
		}
	}
	if len(d.r.Upserts) == 0 {
		d.r.Upserts = nil
	}
}

func (d *responseDecoder) remove(at int, name []byte, err error) {
	if err == nil && !utf8.Valid(name) {
		err = errUTF8
	}
	if err != nil || len(name) == 0 {
		d.malformed("", fmt.Errorf("removed_resources[%d]: %w", at, orNoName(err)))
		return
	}
	d.r.Removed = append(d.r.Removed, xds.CanonicalName(string(name)))
}

// failure reads a ResourceError: "a resource in this field with a status of NOT_FOUND should be
// treated the same as a resource listed in the removed_resources".
func (d *responseDecoder) failure(at int, b []byte) {
	const notFound = 5
	var e xds.ResourceError
	var err error
	for len(b) > 0 && err == nil {
		var f field
		if f, b, err = next(b); err != nil || f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case errorResource:
			var name []byte
			if name, err = located(f.data); len(name) > 0 {
				e.Name = xds.CanonicalName(string(name))
			}
		case errorDetail:
			err = decodeStatus(f.data, &e.Status)
		}
	}
	switch {
	case err != nil || e.Name == "":
		d.malformed(e.Name, fmt.Errorf("resource_errors[%d]: %w", at, orNoName(err)))
	case e.Status.Code == notFound:
		d.r.Missing = append(d.r.Missing, e.Name)
	default:
		d.r.Errors = append(d.r.Errors, e)
	}
}

// resource reads an entry of the field resources.
func (d *responseDecoder) resource(at int, b []byte) {
	if r := d.same(b); r != nil {
		d.r.Upserts = append(d.r.Upserts, r)
		return
	}
	w, err := d.unwrap(b)
	name := xds.CanonicalName(w.name)
	switch {
	case err != nil:
	case w.any != nil:
		name, err = d.upsert(name, &w)
	case name == "":
		err = errNoName
	case name == xds.Wildcard:
		err = errWildcard
	case w.version == "" && w.ttl == 0:
		d.r.Absent = append(d.r.Absent, name)
	default:
		d.r.Beats = append(d.r.Beats, &xds.Resource{Stamp: &xds.Stamp{Name: name, Version: w.version}, Type: d.r.Type, TTL: w.ttl})
	}
	switch {
	case err == nil:
		return
	case len(d.r.Malformed) == maxMalformed: // and no place is looked for
		d.more++
		return
	}
	place := fmt.Sprintf("resources[%d]", at)
	switch {
	case d.o.Place != nil && name != "":
		place = fmt.Sprintf("%s: resource %q", d.o.Place(at), name)
	case d.o.Place != nil:
		place = d.o.Place(at)
	case name != "":
		place = fmt.Sprintf("resource %q", name)
	}
	d.malformed(name, fmt.Errorf("%s: %w", place, err))
}

// upsert adds a resource, and returns its name as far as it is known.
func (d *responseDecoder) upsert(name string, w *wrapper) (string, error) {
	t := d.r.Type
	if string(w.any.url) != t.URL {
		return name, w.any.otherThan(t)
	}
	own, err := bodyName(t, w.any.value)
	if err != nil {
		return name, fmt.Errorf("malformed %s: %w", t.URL, err)
	}
	if name == "" && d.o.Name != nil && !t.Known() {
		own = d.o.Name(t, w.any.value)
	}
	if name == "" {
		name = xds.CanonicalName(own)
	}
	switch {
	case name == "":
		return "", errNoName
	case name == xds.Wildcard:
		return "", errWildcard
	case xds.IsCollection(name):
		return name, errCollection
	}
	r := d.named(name)
	if !w.says(r) {
		r = &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: t, Body: slices.Clone(w.any.value), Aliases: w.aliases, TTL: w.ttl}
		r.Seal(w.version)
	}
	d.r.Upserts = append(d.r.Upserts, r)
	if d.memos != nil {
		d.memos = append(d.memos, memo{r, w.bare})
	}
	return name, nil
}

// otherThan is the error of a resource of another type, and says its name if it has one.
func (a *anyMessage) otherThan(t *xds.Type) error {
	is := typeOf(a.url)
	if is == nil {
		return fmt.Errorf("has no type, want %s", t.URL)
	}
	if name, err := bodyName(is, a.value); err == nil && name != "" {
		return fmt.Errorf("is a %s called %q, want a %s", is.URL, name, t.URL)
	}
	return fmt.Errorf("is a %s, want a %s", strings.ToValidUTF8(is.URL, "\uFFFD"), t.URL)
}
