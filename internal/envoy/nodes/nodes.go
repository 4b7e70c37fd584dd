// Package nodes reads the node of a client from text.
package nodes

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// Read parses a node from JSON or YAML, in the form of an Envoy's bootstrap.
func Read(src []byte, types *envoy.Types) (*xds.Node, error) {
	typ, err := types.FindMessageByName("envoy.service.discovery.v3.DiscoveryRequest")
	if err != nil {
		return nil, err
	}
	docs, err := protoyaml.ParseYAML("node", src)
	if err != nil {
		return nil, err
	}
	if len(docs) != 1 {
		return nil, fmt.Errorf("%d documents: must be one node", len(docs))
	}
	request := typ.New()
	field := request.Descriptor().Fields().ByName("node")
	d := protoyaml.Decoder{File: "node", Source: src, Types: types}
	d.Message(docs[0], request.Mutable(field).Message().Interface(), "")
	for _, p := range d.Problems {
		if !p.Warning {
			return nil, p
		}
	}
	b, err := proto.Marshal(request.Interface())
	if err != nil {
		return nil, err
	}
	req, err := (&wire.Decoder{Variant: xds.SotW}).Decode(b)
	if err != nil {
		return nil, err
	}
	return req.Node, nil
}
