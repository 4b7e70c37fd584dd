package wire

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Fields of envoy.config.core.v3.Node.
const (
	nodeIDField        = 1
	nodeCluster        = 2
	nodeMetadata       = 3
	nodeLocality       = 4
	nodeAgentName      = 6
	nodeAgentVersion   = 7 // a node has this field or the next
	nodeAgentBuild     = 8
	nodeClientFeatures = 10
)

// A build is the version of a user agent as numbers, as Envoy sends it.
type build struct {
	isSet bool // the message has a SemanticVersion
	part  [3]uint32
}

func (v build) String() string {
	if !v.isSet {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", v.part[0], v.part[1], v.part[2])
}

// decodeNode merges an encoded Node into n. The argument v has the build version decoded so far.
func decodeNode(b []byte, n *xds.Node, v *build) error {
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
		case nodeIDField:
			n.ID, err = text(f.data)
		case nodeCluster:
			n.Cluster, err = text(f.data)
		case nodeMetadata:
			// Concatenation of encodings merges messages.
			n.Metadata = append(n.Metadata, f.data...)
		case nodeLocality:
			err = decodeLocality(f.data, n)
		case nodeAgentName:
			n.UserAgentName, err = text(f.data)
		case nodeAgentVersion:
			*v = build{}
			n.UserAgentVersion, err = text(f.data)
		case nodeAgentBuild:
			err = decodeBuild(f.data, v)
			n.UserAgentVersion = v.String()
		case nodeClientFeatures:
			var s string
			s, err = text(f.data)
			n.ClientFeatures = append(n.ClientFeatures, s)
		}
		if err != nil {
			return fmt.Errorf("node: field %d: %w", f.num, err)
		}
	}
	return nil
}

// nodeID returns the id of an encoded Node, as decodeNode would. If the Node has no id, nodeID
// returns the given id. It skips all other fields.
func nodeID(b, id []byte) []byte {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			break
		}
		if f.num == nodeIDField && f.typ == protowire.BytesType {
			id = f.data
		}
		b = rest
	}
	return id
}

func decodeLocality(b []byte, n *xds.Node) error {
	parts := [...]*string{1: &n.Region, 2: &n.Zone, 3: &n.SubZone}
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.typ != protowire.BytesType || int(f.num) >= len(parts) {
			continue
		}
		*parts[f.num], err = text(f.data)
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeBuild merges an encoded BuildVersion into v.
func decodeBuild(b []byte, v *build) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.num != 1 || f.typ != protowire.BytesType {
			continue
		}
		v.isSet = true
		for s := f.data; len(s) > 0; { // a SemanticVersion
			f, s, err = next(s)
			if err != nil {
				return err
			}
			if f.typ == protowire.VarintType && 1 <= f.num && f.num <= 3 {
				v.part[f.num-1] = uint32(f.varint)
			}
		}
	}
	return nil
}

func text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errUTF8
	}
	return string(b), nil
}
