package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

var (
	errNoName   = errors.New("has no name")
	errWildcard = errors.New(`the name "*" is reserved: it subscribes to all resources`)

	errLong = fmt.Errorf("has a name or a version of more than %d bytes", maxName)

	errCollection = errors.New("has the name of a collection")
	errNoOwnName  = errors.New("has no name in its message")
)

func orNoName(err error) error {
	if err == nil {
		return errNoName
	}
	return err
}

// A wrapper is an entry of the field resources: the protocol's Resource message, or an Any without it.
type wrapper struct {
	name    string
	version string
	aliases []string
	ttl     time.Duration
	any     *anyMessage // nil: the entry has no resource
	bare    bool        // the entry is an Any without the Resource message
}

// maxAliases is how many aliases a resource may have. An alias costs the client more memory than the server.
const maxAliases = 10_000

// An anyMessage is a google.protobuf.Any. Its bytes are part of the message.
type anyMessage struct{ url, value []byte }

// unwrap decodes an entry of the field resources. With an error it also returns the part that it
// has decoded.
func (d *responseDecoder) unwrap(b []byte) (w wrapper, err error) {
	if d.v == xds.Delta {
		err = w.merge(b)
		return w, err
	}
	var a anyMessage
	if err := a.merge(b); err != nil {
		return w, err
	}
	if string(a.url) == resourceURL && d.r.Type.URL != resourceURL {
		err = w.merge(a.value)
	} else {
		w.any, w.bare = &a, true
	}
	return w, err
}

// merge decodes a Resource message into w.
func (w *wrapper) merge(b []byte) error {
	var name, own string // from the fields resource_name and name, of which only one should be set
	var ttl struct {
		told           bool
		seconds, nanos int64
	}
	var met map[string]bool // aliases so far
	defer func() {          // an error is reported with the name that was decoded before the error
		w.name = own
		if own == "" {
			w.name = name
		}
	}()
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
		case resourceName:
			own, err = text(f.data)
		case resourceNameMessage:
			var n []byte
			n, err = locatorName(f.data)
			if len(n) > 0 {
				name = string(n)
			}
		case resourceVersion:
			w.version, err = text(f.data)
		case resourceAliases:
			var alias string
			alias, err = text(f.data)
			// The empty name and the wildcard cannot be aliases.
			switch alias = xds.CanonicalName(alias); {
			case err != nil || alias == "" || alias == xds.Wildcard || met[alias]:
			case len(w.aliases) == maxAliases:
				err = fmt.Errorf("more than %d aliases", maxAliases)
			default:
				if met == nil {
					met = map[string]bool{}
				}
				met[alias] = true
				w.aliases = append(w.aliases, alias)
			}
		case resourceAny:
			if w.any == nil {
				w.any = &anyMessage{}
			}
			err = w.any.merge(f.data)
		case resourceTTL:
			ttl.told = true
			err = eachVarint(f.data, func(num protowire.Number, n uint64) {
				switch num {
				case durationSeconds:
					ttl.seconds = int64(n)
				case durationNanos:
					ttl.nanos = int64(int32(n))
				}
			})
		}
		if err != nil {
			return fmt.Errorf("field %d: %w", f.num, err)
		}
	}
	if !ttl.told {
		return nil
	}
	if ttl.seconds < 0 || ttl.nanos < 0 || ttl.nanos >= int64(time.Second) {
		return fmt.Errorf("invalid TTL: %d s and %d ns", ttl.seconds, ttl.nanos)
	}
	w.ttl = math.MaxInt64 // 292 years
	if ttl.seconds < math.MaxInt64/int64(time.Second) {
		w.ttl = time.Duration(ttl.seconds)*time.Second + time.Duration(ttl.nanos)
	}
	return nil
}

// resourceNameMessage is the field of a Resource for a name with parameters.
const resourceNameMessage = 8

// merge decodes an Any message into a.
func (a *anyMessage) merge(b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return fmt.Errorf("malformed Any: %w", err)
		}
		switch b = rest; {
		case f.typ != protowire.BytesType:
		case f.num == anyTypeURL:
			a.url = f.data
		case f.num == anyValue:
			a.value = f.data
		}
	}
	return nil
}

// describes reports whether r is equal to the resource that w describes.
func (w *wrapper) describes(r *xds.Resource) bool {
	if r == nil || r.TTL != w.ttl || !bytes.Equal(r.Body, w.any.value) || !slices.Equal(r.Aliases, w.aliases) {
		return false
	}
	if w.version == "" {
		return r.Version == r.Sum.String()
	}
	return r.Version == w.version
}

// ResourceName returns the name of a resource of type t, or the reason why clients cannot use the resource (CLI-15).
// Clients and servers share this rule. The parameter name is the canonical name outside the message; "": none. Some
// clients know a resource only by the name in its message, so the two names must be equal. With an error,
// ResourceName also returns the name, if known.
func ResourceName(t *xds.Type, name string, body []byte) (string, error) {
	own, err := bodyName(t, body)
	own = xds.CanonicalName(own)
	switch {
	case err != nil:
		return name, fmt.Errorf("malformed %s: %w", t.URL, err)
	case name == "":
		name = own
	case t.Name == "" || !t.Known():
	case own == "":
		return name, errNoOwnName
	case own != name:
		return name, fmt.Errorf("the name in the message is %q: use that name, and aliases for other names", own)
	}
	switch {
	case name == "":
		return "", errNoName
	case name == xds.Wildcard:
		return "", errWildcard
	case xds.IsCollection(name):
		return name, errCollection
	}
	return name, nil
}

// bodyName returns the name inside an encoded message, or "" if messages of the type have no name field. It
// returns an error if the bytes are not a message. It does not decode nested messages.
func bodyName(t *xds.Type, body []byte) (string, error) {
	const nameField = 1 // in all types with a name field ([xds.Type.Name])
	var name []byte
	for len(body) > 0 {
		f, rest, err := next(body)
		if err != nil {
			return "", err
		}
		body = rest
		if f.num == nameField && f.typ == protowire.BytesType {
			name = f.data
		}
	}
	if t.Name == "" || !t.Known() {
		return "", nil
	}
	if !utf8.Valid(name) {
		return "", errUTF8
	}
	return string(name), nil
}

// eachVarint passes the number and value of each varint field of a message to look.
func eachVarint(b []byte, look func(protowire.Number, uint64)) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.typ == protowire.VarintType {
			look(f.num, f.varint)
		}
	}
	return nil
}
