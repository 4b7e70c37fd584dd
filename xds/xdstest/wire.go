package xdstest

import (
	"fmt"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// raw is a gRPC codec for encoded messages: it sends a []byte and receives into a *[]byte.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not encoded", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (raw) Unmarshal(b mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive into %T", v)
	}
	*to = b.Materialize()
	return nil
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendMessage(b []byte, n protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m)
}

// encode encodes a DiscoveryRequest or a DeltaDiscoveryRequest.
func encode(v xds.Variant, r *xds.Request) (b []byte) {
	node, typ, nonce, failure := protowire.Number(2), protowire.Number(4), protowire.Number(5), protowire.Number(6)
	if v == xds.Delta {
		node, typ, nonce, failure = 1, 2, 6, 7
	}
	if r.Node != nil {
		b = appendMessage(b, node, encodeNode(r.Node))
	}
	b = appendText(appendText(b, typ, r.Type.URL), nonce, r.Nonce)
	if r.Error != nil {
		s := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(r.Error.Code))
		b = appendMessage(b, failure, appendText(s, 2, r.Error.Message))
	}
	if v == xds.SotW {
		b = appendText(b, 1, r.Version)
		for _, n := range r.Names {
			b = appendMessage(b, 3, []byte(n))
		}
		return b
	}
	for _, n := range r.Subscribe {
		b = appendMessage(b, 3, []byte(n))
	}
	for _, n := range r.Unsubscribe {
		b = appendMessage(b, 4, []byte(n))
	}
	for _, has := range r.Initial {
		b = appendMessage(b, 5, appendText(appendText(nil, 1, has.Name), 2, has.Version))
	}
	return b
}

func encodeNode(n *xds.Node) []byte {
	b := appendText(appendText(nil, 1, n.ID), 2, n.Cluster)
	if n.Metadata != nil {
		b = appendMessage(b, 3, n.Metadata)
	}
	if where := appendText(appendText(appendText(nil, 1, n.Region), 2, n.Zone), 3, n.SubZone); where != nil {
		b = appendMessage(b, 4, where)
	}
	b = appendText(appendText(b, 6, n.UserAgentName), 7, n.UserAgentVersion)
	for _, f := range n.ClientFeatures {
		b = appendText(b, 10, f)
	}
	return b
}

// each calls f for each field of a message that is of bytes or a number.
func each(b []byte, f func(n protowire.Number, v []byte, number uint64) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var v []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(n, typ, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := f(n, v, number); err != nil {
			return err
		}
	}
	return nil
}

// decode decodes a DiscoveryResponse or a DeltaDiscoveryResponse.
func decode(v xds.Variant, b []byte) (*Response, error) {
	control, failures := protowire.Number(6), protowire.Number(7)
	if v == xds.Delta {
		control, failures = 7, 9
	}
	r, url := &Response{}, ""
	var resources [][]byte
	err := each(b, func(n protowire.Number, v2 []byte, _ uint64) error {
		switch n {
		case 1:
			r.Version = string(v2)
		case 2:
			resources = append(resources, v2)
		case 4:
			url = string(v2)
		case 5:
			r.Nonce = string(v2)
		case control: // 6 in SotW
			return each(v2, func(n protowire.Number, id []byte, _ uint64) error {
				if n == 1 {
					r.Identifier = string(id)
				}
				return nil
			})
		case 6: // delta
			r.Removed = append(r.Removed, string(v2))
		case failures:
			name, err := decodeError(v2)
			r.Errors = append(r.Errors, name)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Type = xds.TypeOf(url)
	for _, b := range resources {
		res, err := decodeResource(v, r.Type, b)
		if err != nil {
			return nil, err
		}
		r.Resources = append(r.Resources, res)
	}
	return r, nil
}

// decodeError returns the name of a ResourceError.
func decodeError(b []byte) (name string, err error) {
	err = each(b, func(n protowire.Number, v []byte, _ uint64) error {
		if n != 1 {
			return nil
		}
		return each(v, func(n protowire.Number, v []byte, _ uint64) error { // a ResourceName
			if n == 1 {
				name = string(v)
			}
			return nil
		})
	})
	return name, err
}

const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// decodeResource decodes a resource. In delta it is the protocol's Resource message. In SotW it is an Any, which
// may contain the protocol's Resource message.
func decodeResource(v xds.Variant, t *xds.Type, b []byte) (*xds.Resource, error) {
	r := &xds.Resource{Stamp: &xds.Stamp{}, Type: t}
	if v == xds.Delta {
		return r, wrapped(r, b)
	}
	url, body, err := decodeAny(b)
	if err != nil {
		return nil, err
	}
	if url == wrapper {
		return r, wrapped(r, body)
	}
	r.Type, r.Body = xds.TypeOf(url), body
	_ = each(body, func(n protowire.Number, v []byte, _ uint64) error {
		if n == 1 { // the name, in all Envoy types that SotW can carry
			r.Name = string(v)
		}
		return nil
	})
	return r, nil
}

func decodeAny(b []byte) (url string, body []byte, err error) {
	body = []byte{} // not nil, even if empty
	err = each(b, func(n protowire.Number, v []byte, _ uint64) error {
		switch n {
		case 1:
			url = string(v)
		case 2:
			body = v
		}
		return nil
	})
	return url, body, err
}

// wrapped decodes the protocol's Resource message. Body is nil if the message has no resource.
func wrapped(r *xds.Resource, b []byte) error {
	return each(b, func(n protowire.Number, v []byte, _ uint64) (err error) {
		switch n {
		case 1:
			r.Version = string(v)
		case 2:
			var url string
			url, r.Body, err = decodeAny(v)
			if err == nil && url != "" {
				r.Type = xds.TypeOf(url)
			}
		case 3:
			r.Name = string(v)
		case 4:
			r.Aliases = append(r.Aliases, string(v))
		case 6:
			return each(v, func(n protowire.Number, _ []byte, number uint64) error {
				switch n {
				case 1:
					r.TTL += time.Duration(number) * time.Second
				case 2:
					r.TTL += time.Duration(number)
				}
				return nil
			})
		}
		return err
	})
}
