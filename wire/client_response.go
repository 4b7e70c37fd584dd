package wire

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// ResponseOptions are the options of [DecodeResponse]. The zero value is ready to use.
type ResponseOptions struct {
	// Only is the type of a stream that serves one type. A response without a type then has this type,
	// and a response of another type is malformed. Nil: the stream is aggregated.
	Only *xds.Type

	// Name returns the name inside the message of a resource, or "" if the message has no name.
	// DecodeResponse calls it for types that the table does not list ([xds.Type.Known]), if the
	// response has no name outside the message. Nil: such resources are malformed.
	Name func(t *xds.Type, body []byte) string

	// Place returns the origin of an entry of the field resources, for errors: "clusters.yaml:3:5".
	// If Place is nil, errors have the name of the resource, or "resources[0]" if the resource has
	// no name.
	Place func(at int) string

	// Limit limits the memory of a response: its size, 512 bytes for each resource, removed name and
	// error, and 64 bytes for each alias. Instead of the content of a larger response, Malformed has an [xds.LimitError].
	Limit xds.MemoryLimit

	// Memory remembers the resources of the stream, which makes repeated SotW responses cheap. Nil:
	// all resources are copied.
	Memory *Memory
}

// maxMalformed is the number of malformed resources of a response that are reported one by one. Without a
// limit, a malicious response would cost many times its size.
const maxMalformed = 100

// entryCost is the memory of a decoded entry of a response, in bytes, without its content.
const entryCost = 512

// aliasCost is the memory of a decoded alias, in bytes.
const aliasCost = 64

// maxName limits the name and the version of a resource, in bytes. Servers have the same limit for requests.
const maxName = 4096

// maxToken limits the nonce and the version of a response, in bytes. The client keeps them, and sends them back.
const maxToken = 64 << 10

// removedNames is the field of a delta response for removed names with parameters.
const removedNames = 8

// DecodeResponse decodes a DiscoveryResponse or a DeltaDiscoveryResponse for a client. It keeps no reference to
// b. The result has the order of the message and keeps duplicates.
//
// It returns an error if the message cannot be decoded. A resource that cannot be decoded, has another type
// than the response, has no name, or has another name in its message than outside becomes an
// [xds.MalformedError] in Malformed. The result still has the other resources.
//
// The version of a resource is the version in the protocol's Resource message, or else the hash of
// its content. A Resource without a body is a heartbeat if it has a version or a TTL. The version
// may be "", because some servers, such as go-control-plane over SotW, do not repeat it. A Resource
// with neither body nor version nor TTL means that the name does not exist.
//
// Names are canonical ([xds.CanonicalName]). Duplicate aliases are dropped, and a resource with more than 10,000
// aliases is malformed. A response without a type has the type of Only, or else a type with the URL "".
func DecodeResponse(v xds.Variant, b []byte, o ResponseOptions) (*xds.Response, error) {
	message := "DiscoveryResponse"
	if v == xds.Delta {
		message = "DeltaDiscoveryResponse"
	}
	d := responseDecoder{v: v, o: o, r: &xds.Response{Changes: &xds.Changes{}, Size: len(b)}}
	if err := d.head(b); err != nil {
		return nil, fmt.Errorf("malformed %s: %w", message, err)
	}
	if o.Only != nil && !d.r.Type.Is(o.Only) {
		d.malformed("", fmt.Errorf("the response is of type %q, on a stream of %s", d.r.Type.URL, o.Only.URL))
		d.r.Type = o.Only
		return d.r, nil
	}
	if d.exceeds() {
		d.refuse(len(b))
		return d.r, nil
	}
	remembers := o.Memory != nil && v == xds.SotW
	if remembers {
		d.begin(o.Memory, d.r.Type)
	}
	d.content(b)
	if d.exceeds() { // the cost of aliases is known only now
		d.refuse(len(b))
	}
	if remembers {
		o.Memory.keep(d.r, d.memos, d.cost, o.Limit.Bytes)
	}
	if d.unlisted > 0 {
		d.r.Malformed = append(d.r.Malformed, &xds.MalformedError{Err: fmt.Errorf("and %d more", d.unlisted)})
	}
	d.r.TTL = hasTTL(d.r.Changes)
	return d.r, nil
}

// A responseDecoder decodes one response.
type responseDecoder struct {
	v        xds.Variant
	o        ResponseOptions
	r        *xds.Response
	unlisted int // malformed resources that are not reported one by one
	entries  int // resources, removed names and errors
	cost     int // bytes of memory
	recall
}

// exceeds reports whether the response is above the limit.
func (d *responseDecoder) exceeds() bool { return d.o.Limit.Bytes > 0 && d.cost > d.o.Limit.Bytes }

// refuse replaces the content of a response above the limit by an error.
func (d *responseDecoder) refuse(size int) {
	d.r.Changes, d.r.Errors, d.r.Malformed, d.memos, d.unlisted = &xds.Changes{}, nil, nil, nil, 0
	d.malformed("", d.o.Limit.Exceeded(xds.LimitResponse, fmt.Sprintf("the response has %d bytes and %d entries, which take %d bytes", size, d.entries, d.cost)))
}

func (d *responseDecoder) malformed(name string, err error) {
	if len(d.r.Malformed) == maxMalformed {
		d.unlisted++
		return
	}
	d.r.Malformed = append(d.r.Malformed, &xds.MalformedError{Name: name, Err: err})
}

// head decodes the fields of the whole response, which may come after the resources.
func (d *responseDecoder) head(b []byte) error {
	var version, url, nonce []byte
	var resources, removed int
	whole := len(b)
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.typ != protowire.BytesType {
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
			d.entries++ // perhaps an error
			continue
		}
		if len(f.data) > maxToken && f.num != fieldTypeURL {
			return fmt.Errorf("field %d has %d bytes, more than %d", f.num, len(f.data), maxToken)
		}
		if !utf8.Valid(f.data) {
			return fmt.Errorf("field %d: %w", f.num, errUTF8)
		}
	}
	d.r.Version, d.r.Nonce = string(version), string(nonce)
	d.r.Type = typeOf(url)
	if d.r.Type == nil {
		d.r.Type = d.o.Only
		if d.r.Type == nil {
			d.r.Type = xds.TypeOf("")
		}
	}
	d.entries += resources + removed
	d.cost = whole + d.entries*entryCost
	if d.exceeds() {
		return nil
	}
	d.r.Upserts = withCapacity[*xds.Resource](resources)
	if d.v == xds.Delta {
		d.r.Removed = withCapacity[string](removed)
	}
	return nil
}

// content decodes the resources, the removed names and the errors.
func (d *responseDecoder) content(b []byte) {
	delta := d.v == xds.Delta
	errors := fieldErrors + 2*protowire.Number(d.v)
	var at, removed, failed int
	for len(b) > 0 && !d.exceeds() {
		var f field
		f, b, _ = next(b) // head has already checked the message
		switch {
		case f.typ != protowire.BytesType:
		case f.num == fieldResources:
			d.resource(at, f.data)
			at++
		case delta && f.num == fieldRemoved:
			d.remove(removed, f.data, nil)
			removed++
		case delta && f.num == removedNames:
			name, err := locatorName(f.data) // a ResourceName has its name in the same field as a ResourceLocator
			d.remove(removed, name, err)
			removed++
		case f.num == errors:
			d.resourceError(failed, f.data)
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

// resourceError decodes a ResourceError: "a resource in this field with a status of NOT_FOUND should be treated the
// same as a resource listed in the removed_resources".
func (d *responseDecoder) resourceError(at int, b []byte) {
	const notFound = 5
	var e xds.ResourceError
	var err error
	for len(b) > 0 && err == nil {
		var f field
		f, b, err = next(b)
		if err != nil || f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case errorResource:
			var name []byte
			name, err = locatorName(f.data)
			if len(name) > 0 {
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

// resource decodes an entry of the field resources.
func (d *responseDecoder) resource(at int, b []byte) {
	if r := d.same(b); r != nil {
		d.r.Upserts = append(d.r.Upserts, r)
		return
	}
	w, err := d.unwrap(b)
	d.cost += len(w.aliases) * aliasCost
	name := xds.CanonicalName(w.name)
	if max(len(name), len(w.version)) > maxName {
		err = errLong
	}
	if len(name) > maxName {
		name = "" // the client keeps the names of malformed resources
	}
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
	case len(d.r.Malformed) == maxMalformed: // Place is not called for the unlisted resources
		d.unlisted++
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

// upsert adds a resource. It returns the name of the resource, if known, even with an error.
func (d *responseDecoder) upsert(name string, w *wrapper) (string, error) {
	t := d.r.Type
	if string(w.any.url) != t.URL {
		return name, w.any.typeError(t)
	}
	if name == "" && d.o.Name != nil && !t.Known() {
		name = xds.CanonicalName(d.o.Name(t, w.any.value))
	}
	name, err := ResourceName(t, name, w.any.value)
	switch {
	case len(name) > maxName:
		return "", errLong
	case err != nil:
		return name, err
	}
	r := d.named(name)
	if !w.describes(r) {
		r = &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: t, Body: slices.Clone(w.any.value), Aliases: w.aliases, TTL: w.ttl}
		r.Seal(w.version)
	}
	d.r.Upserts = append(d.r.Upserts, r)
	if d.memos != nil {
		d.memos = append(d.memos, remembered{r, w.bare})
	}
	return name, nil
}

// typeError returns the error of a resource of another type than t. The error includes the name, if
// the resource has one.
func (a *anyMessage) typeError(t *xds.Type) error {
	is := typeOf(a.url)
	if is == nil {
		return fmt.Errorf("has no type, want %s", t.URL)
	}
	if name, err := bodyName(is, a.value); err == nil && name != "" {
		return fmt.Errorf("is a %s called %q, want a %s", is.URL, name, t.URL)
	}
	return fmt.Errorf("is a %s, want a %s", strings.ToValidUTF8(is.URL, "\uFFFD"), t.URL)
}
