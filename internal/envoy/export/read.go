package export

import (
	"fmt"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// read returns the pieces of an exported file.
func (f *Format) read(types *envoy.Types, t *xds.Type, data []byte) ([]*piece, error) {
	m := types.New(responseName).Interface()
	var err error
	switch f.ext {
	case ".pb":
		err = proto.UnmarshalOptions{Resolver: types}.Unmarshal(data, m)
	case ".pb_text":
		err = prototext.UnmarshalOptions{Resolver: types}.Unmarshal(data, m)
	default:
		err = fromYAML(types, data, m) // JSON is YAML
	}
	if err != nil {
		return nil, err
	}
	pieces := []*piece{}
	resources := get(m.ProtoReflect(), "resources").List()
	for i := range resources.Len() {
		packed := resources.Get(i).Message()
		a := &anypb.Any{TypeUrl: get(packed, "type_url").String(), Value: get(packed, "value").Bytes()}
		typ, err := types.FindMessageByURL(a.TypeUrl)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.TypeUrl, err)
		}
		inner := typ.New().Interface()
		if err := (proto.UnmarshalOptions{Resolver: types}).Unmarshal(a.Value, inner); err != nil {
			return nil, err
		}
		r, err := wire.NewResource(t, "", inner)
		if err != nil {
			return nil, err
		}
		p, err := f.piece(types, a)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, &piece{name: r.Name, data: p, addresses: r.Addresses})
	}
	return pieces, nil
}

func fromYAML(types *envoy.Types, data []byte, m proto.Message) error {
	docs, err := protoyaml.ParseYAML("", data)
	if err != nil {
		return err
	}
	if len(docs) != 1 {
		return fmt.Errorf("%d documents", len(docs))
	}
	d := protoyaml.Decoder{Source: data, Types: types}
	d.Message(docs[0], m, "")
	for _, p := range d.Problems {
		if !p.Warning {
			return p
		}
	}
	return nil
}
