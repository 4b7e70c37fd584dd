package lastgood

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/protoscan"
	"github.com/chancery-xds/chancery/xds"
)

// A record is encoded as an envoy.service.discovery.v3.DeltaDiscoveryResponse, so that other programs
// can read the file.
type record struct {
	version   string
	resources [][]byte // each a Resource of the protocol
	url       string
	kind      string // in the field of the nonce
}

// The field numbers of DeltaDiscoveryResponse, Resource, Any, Metadata and the entries of a map.
const (
	recordVersion, recordResources, recordURL, recordKind = 1, 2, 4, 5

	resourceVersion, resourceAny, resourceName, resourceAliases, resourceTTL, resourceMetadata = 1, 2, 3, 4, 6, 9

	anyURL, anyValue     = 1, 2
	metadataFilters      = 1
	entryKey, entryValue = 1, 2
)

func (m record) write(w *bufio.Writer) error {
	_, err := w.Write(m.encode())
	return err
}

// encode returns the message with its length in front.
func (m record) encode() []byte {
	size := 0
	for _, r := range m.resources {
		size += len(r) + 16
	}
	b := appendString(make([]byte, 0, size+len(m.version)+len(m.url)+64), recordVersion, m.version)
	for _, r := range m.resources {
		b = appendBytes(b, recordResources, r)
	}
	b = appendString(b, recordURL, m.url)
	b = appendString(b, recordKind, m.kind)
	return append(protowire.AppendVarint(make([]byte, 0, len(b)+10), uint64(len(b))), b...)
}

func readRecord(in *bytes.Reader) (m record, err error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return m, err
	}
	if n > uint64(in.Len()) {
		return m, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return m, err
	}
	err = protoscan.Sized(b, func(num protowire.Number, v []byte) error {
		switch num {
		case recordVersion:
			m.version = string(v)
		case recordResources:
			m.resources = append(m.resources, v)
		case recordURL:
			m.url = string(v)
		case recordKind:
			m.kind = string(v)
		}
		return nil
	})
	return m, err
}

func (p Peak) encode() record {
	r := appendString(nil, resourceVersion, p.Until.UTC().Format(time.RFC3339Nano))
	r = appendString(r, resourceName, strconv.Itoa(p.N))
	return record{url: p.URL, kind: peak, resources: [][]byte{r}}
}

func decodePeak(m record) (p Peak, err error) {
	if len(m.resources) != 1 {
		return p, errDamaged
	}
	r, err := decode(nil, m.resources[0])
	if err != nil {
		return p, err
	}
	p.URL = m.url
	p.N, err = strconv.Atoi(r.Name)
	if err != nil {
		return p, err
	}
	p.Until, err = time.Parse(time.RFC3339Nano, r.Version)
	return p, err
}

// encode returns a record of one resource: its name is the path, and its body is the file.
func (d Definition) encode() record {
	r := appendString(nil, resourceName, d.Path)
	r = appendBytes(r, resourceAny, appendBytes(nil, anyValue, d.Data))
	return record{kind: definition, resources: [][]byte{r}}
}

func decodeDefinition(m record) (Definition, error) {
	if len(m.resources) != 1 {
		return Definition{}, errDamaged
	}
	r, err := decode(nil, m.resources[0])
	if err != nil {
		return Definition{}, err
	}
	return Definition{Path: r.Name, Data: r.Body}, nil
}

// place is the metadata key of the place of a resource.
const place = "chancery"

func (r Resource) encode(url string) ([]byte, error) {
	// A file name may have any bytes, but a protobuf string must be valid UTF-8.
	file := strings.ToValidUTF8(r.File, "\uFFFD")
	at, err := proto.MarshalOptions{Deterministic: true}.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{
		"file": structpb.NewStringValue(file), "line": structpb.NewNumberValue(float64(r.Line)), "column": structpb.NewNumberValue(float64(r.Col)),
		"path": structpb.NewStringValue(r.Path), "on_demand": structpb.NewBoolValue(r.OnDemand),
	}})
	if err != nil {
		return nil, err
	}
	inner := appendString(make([]byte, 0, len(url)+len(r.Body)+16), anyURL, url)
	inner = appendBytes(inner, anyValue, r.Body)
	b := appendString(make([]byte, 0, len(inner)+len(at)+len(r.Name)+64), resourceVersion, r.Version)
	b = appendBytes(b, resourceAny, inner)
	b = appendString(b, resourceName, r.Name)
	for _, a := range r.Aliases {
		b = protowire.AppendTag(b, resourceAliases, protowire.BytesType)
		b = protowire.AppendString(b, a)
	}
	if r.TTL != 0 {
		ttl, err := proto.Marshal(durationpb.New(r.TTL))
		if err != nil {
			return nil, err
		}
		b = appendBytes(b, resourceTTL, ttl)
	}
	entry := appendBytes(appendString(nil, entryKey, place), entryValue, at)
	return appendBytes(b, resourceMetadata, appendBytes(nil, metadataFilters, entry)), nil
}

// decode returns a resource of a type, without its references.
func decode(t *xds.Type, b []byte) (Resource, error) {
	r := Resource{Resource: &xds.Resource{Stamp: &xds.Stamp{}, Type: t}}
	version := ""
	err := protoscan.Sized(b, func(num protowire.Number, v []byte) error {
		switch num {
		case resourceVersion:
			version = string(v)
		case resourceAny:
			return protoscan.Sized(v, func(num protowire.Number, v []byte) error {
				if num == anyValue {
					r.Body = bytes.Clone(v)
				}
				return nil
			})
		case resourceName:
			r.Name = xds.CanonicalName(string(v)) // an earlier version may have had another form
		case resourceAliases:
			r.Aliases = append(r.Aliases, xds.CanonicalName(string(v)))
		case resourceTTL:
			var ttl durationpb.Duration
			if err := proto.Unmarshal(v, &ttl); err != nil {
				return err
			}
			r.TTL = ttl.AsDuration()
		case resourceMetadata:
			return protoscan.Sized(v, func(num protowire.Number, v []byte) error {
				if num == metadataFilters {
					return r.place(v)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	r.Seal(version)
	return r, nil
}

// place reads the place of a resource from an entry of the metadata.
func (r *Resource) place(entry []byte) error {
	key, at := "", structpb.Struct{}
	err := protoscan.Sized(entry, func(num protowire.Number, v []byte) error {
		switch num {
		case entryKey:
			key = string(v)
		case entryValue:
			return proto.Unmarshal(v, &at)
		}
		return nil
	})
	if err != nil || key != place {
		return err
	}
	r.File, r.Path, r.OnDemand = at.Fields["file"].GetStringValue(), at.Fields["path"].GetStringValue(), at.Fields["on_demand"].GetBoolValue()
	r.Line, r.Col = int(at.Fields["line"].GetNumberValue()), int(at.Fields["column"].GetNumberValue())
	return nil
}

// appendString appends a field, unless it is empty.
func appendString(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// appendBytes appends a field.
func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}
