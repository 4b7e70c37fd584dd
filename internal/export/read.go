package export

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// read returns the pieces that a file was made of.
func (f *Format) read(t *xds.Type, data []byte) ([]*piece, error) {
	m := &discoveryv3.DiscoveryResponse{}
	var err error
	switch f.ext {
	case ".pb":
		err = proto.Unmarshal(data, m)
	case ".pb_text":
		err = prototext.Unmarshal(data, m)
	default:
		err = fromYAML(data, m) // JSON is YAML
	}
	if err != nil {
		return nil, err
	}
	pieces := []*piece{}
	for _, a := range m.GetResources() {
		r, err := wire.NewResource(t, "", a)
		if err != nil {
			return nil, err
		}
		p, err := f.piece(a)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, &piece{name: r.Name, data: p})
	}
	return pieces, nil
}

func fromYAML(data []byte, m proto.Message) error {
	docs, err := protofile.ParseYAML("", data)
	if err != nil {
		return err
	}
	if len(docs) != 1 {
		return fmt.Errorf("%d documents", len(docs))
	}
	d := protofile.Decoder{Source: data}
	d.Message(docs[0], m, "")
	for _, p := range d.Problems {
		if !p.Warning {
			return p
		}
	}
	return nil
}
