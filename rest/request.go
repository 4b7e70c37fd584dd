package rest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/internal/text/jsonscan"
	"github.com/chancery-xds/chancery/xds"
)

// decode decodes the fields of a DiscoveryRequest that the server uses, from proto3 JSON. If a field
// occurs twice, the last one counts. The result does not refer to b. An error contains the path and the
// reason.
//
// decode does not use protojson, because the generated messages are not linked. Also, most of each
// request of Envoy is a list of 516 extensions that the server does not use.
func decode(b []byte) (req xds.Request, err error) {
	p := parse(b)
	err = p.Document(func(name string) bool {
		switch name {
		case "version_info":
			req.Version = p.Text()
		case "node":
			req.Node = p.node()
		case "resource_names":
			req.Names = p.Texts()
			for i, n := range req.Names {
				req.Names[i] = xds.CanonicalName(n)
			}
		case "type_url":
			req.Type = nil
			if url := p.Text(); url != "" {
				req.Type = xds.TypeOf(url)
			}
		case "response_nonce":
			req.Nonce = p.Text()
		case "error_detail":
			req.Error = p.status()
		case "resource_names_subscribe", "resource_names_unsubscribe", "initial_resource_versions":
			p.Fail(fmt.Errorf("%s: REST does not support delta xDS", name))
		default:
			return false
		}
		return true
	})
	return req, err
}

// A parser reads the messages of a request.
type parser struct{ *jsonscan.Scanner }

// maxDepth limits the nesting of a request.
const maxDepth = 1000

func parse(b []byte) parser {
	p := parser{jsonscan.New(b, jsonscan.Options{Root: "the request", MaxDepth: maxDepth})}
	if !utf8.Valid(b) {
		p.Fail(errors.New("the request is not UTF-8"))
	}
	return p
}

// status reads a google.rpc.Status. "NACK [...] is indicated by the presence of the error_detail
// field."
func (p parser) status() *xds.Status {
	if p.Null() {
		return nil
	}
	var s xds.Status
	p.Object(func(name string) bool {
		switch name {
		case "code":
			s.Code = int32(p.Integer(math.MinInt32, math.MaxInt32))
		case "message":
			s.Message = p.Text()
		default:
			return false
		}
		return true
	})
	return &s
}

// node reads an envoy.config.core.v3.Node.
func (p parser) node() *xds.Node {
	if p.Null() {
		return nil
	}
	var n xds.Node
	p.Object(func(name string) bool {
		switch name {
		case "id":
			n.ID = p.Text()
		case "cluster":
			n.Cluster = p.Text()
		case "metadata":
			n.Metadata = p.metadata()
		case "locality":
			p.locality(&n)
		case "user_agent_name":
			n.UserAgentName = p.Text()
		case "user_agent_version":
			n.UserAgentVersion = p.Text()
		case "user_agent_build_version":
			n.UserAgentVersion = p.build()
		case "client_features":
			n.ClientFeatures = p.Texts()
		default:
			return false
		}
		return true
	})
	return &n
}

func (p parser) locality(n *xds.Node) {
	p.Object(func(name string) bool {
		switch name {
		case "region":
			n.Region = p.Text()
		case "zone":
			n.Zone = p.Text()
		case "sub_zone":
			n.SubZone = p.Text()
		default:
			return false
		}
		return true
	})
}

// build reads an envoy.config.core.v3.BuildVersion.
func (p parser) build() (version string) {
	p.Object(func(name string) bool {
		if name != "version" {
			return false
		}
		if p.Null() {
			return true
		}
		var part [3]int64
		p.Object(func(name string) bool {
			switch name {
			case "major_number":
				part[0] = p.Integer(0, math.MaxUint32)
			case "minor_number":
				part[1] = p.Integer(0, math.MaxUint32)
			case "patch":
				part[2] = p.Integer(0, math.MaxUint32)
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
func (p parser) metadata() []byte {
	if p.Null() {
		return nil
	}
	raw, _ := p.Raw()
	if raw == nil {
		return nil
	}
	if n := jsonscan.Values(raw); n > nodemeta.MaxEntries {
		p.Fail(fmt.Errorf("%s: more than %d values", p.Where(), nodemeta.MaxEntries))
		return nil
	}
	var s structpb.Struct
	if err := protojson.Unmarshal(raw, &s); err != nil {
		// protojson varies the spaces in its errors, so that programs do not depend on them.
		p.Fail(fmt.Errorf("%s: %s", p.Where(), strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")))
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&s)
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", p.Where(), err))
	}
	return b
}
