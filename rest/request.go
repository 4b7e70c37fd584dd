package rest

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// decode decodes a DiscoveryRequest in proto3 JSON, as far as the server looks
// at it; of a field that is there twice the last counts. It keeps no reference to
// b. An error says where and what is wrong.
//
// By hand, since most of what Envoy sends is the 516 extensions of its node,
// which nobody reads, and since the generated messages are not linked.
func decode(b []byte) (req xds.Request, err error) {
	p := parse(b)
	if p.null() {
		p.fail("the request: want an object, not null")
	}
	p.object(func(name string) bool {
		switch name {
		case "version_info":
			req.Version = p.text()
		case "node":
			req.Node = p.node()
		case "resource_names":
			req.Names = p.texts()
			for i, n := range req.Names {
				req.Names[i] = xds.CanonicalName(n)
			}
		case "type_url":
			req.Type = nil
			if url := p.text(); url != "" {
				req.Type = xds.TypeOf(url)
			}
		case "response_nonce":
			req.Nonce = p.text()
		case "error_detail":
			req.Error = p.status()
		case "resource_names_subscribe", "resource_names_unsubscribe", "initial_resource_versions":
			p.fail("%s: REST has no delta (incremental) xDS", name)
		default:
			return false
		}
		return true
	})
	return req, p.end()
}

// status reads a google.rpc.Status. "NACK [...] is indicated by the presence of
// the error_detail field."
func (p *parser) status() *xds.Status {
	if p.null() {
		return nil
	}
	var s xds.Status
	p.object(func(name string) bool {
		switch name {
		case "code":
			s.Code = int32(p.integer(math.MinInt32, math.MaxInt32))
		case "message":
			s.Message = p.text()
		default:
			return false
		}
		return true
	})
	return &s
}

// node reads an envoy.config.core.v3.Node.
func (p *parser) node() *xds.Node {
	if p.null() {
		return nil
	}
	var n xds.Node
	p.object(func(name string) bool {
		switch name {
		case "id":
			n.ID = p.text()
		case "cluster":
			n.Cluster = p.text()
		case "metadata":
			n.Metadata = p.metadata()
		case "locality":
			p.locality(&n)
		case "user_agent_name":
			n.UserAgentName = p.text()
		case "user_agent_version":
			n.UserAgentVersion = p.text()
		case "user_agent_build_version":
			n.UserAgentVersion = p.build()
		case "client_features":
			n.ClientFeatures = p.texts()
		default:
			return false
		}
		return true
	})
	return &n
}

func (p *parser) locality(n *xds.Node) {
	p.object(func(name string) bool {
		switch name {
		case "region":
			n.Region = p.text()
		case "zone":
			n.Zone = p.text()
		case "sub_zone":
			n.SubZone = p.text()
		default:
			return false
		}
		return true
	})
}

// build reads an envoy.config.core.v3.BuildVersion.
func (p *parser) build() (version string) {
	p.object(func(name string) bool {
		if name != "version" {
			return false
		}
		if p.null() {
			return true
		}
		var part [3]int64
		p.object(func(name string) bool {
			switch name {
			case "major_number":
				part[0] = p.integer(0, math.MaxUint32)
			case "minor_number":
				part[1] = p.integer(0, math.MaxUint32)
			case "patch":
				part[2] = p.integer(0, math.MaxUint32)
			default:
				return false
			}
			return true
		})
		version = fmt.Sprintf("%d.%d.%d", part[0], part[1], part[2])
		return true
	})
	return version
}

// metadata reads a google.protobuf.Struct and encodes it as protobuf.
func (p *parser) metadata() []byte {
	raw := p.raw()
	if raw == nil {
		return nil
	}
	var s structpb.Struct
	if err := protojson.Unmarshal(raw, &s); err != nil {
		// protojson makes its spaces differ, so that nobody relies on its texts.
		p.fail("%s: %s", p.where(), strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&s)
	if err != nil {
		p.fail("%s: %w", p.where(), err)
	}
	return b
}
