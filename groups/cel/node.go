package cel

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/chancery-xds/chancery/groups"
)

var (
	nodeType     = types.NewObjectType("chancery.Node")
	localityType = types.NewObjectType("chancery.Locality")
)

// fieldsOf are the fields of the types in expressions. The value of node.locality is the node itself
// with another type.
var fieldsOf = map[string]map[string]*types.FieldType{
	nodeType.TypeName(): {
		"id":                 text(func(n *groups.Node) string { return n.ID }),
		"cluster":            text(func(n *groups.Node) string { return n.Cluster }),
		"user_agent_name":    text(func(n *groups.Node) string { return n.UserAgentName }),
		"user_agent_version": text(func(n *groups.Node) string { return n.UserAgentVersion }),
		"locality": field(localityType, func(n *groups.Node) any { return n }, func(n *groups.Node) bool {
			return n.Region != "" || n.Zone != "" || n.SubZone != ""
		}),
		"metadata": field(types.NewMapType(types.StringType, types.DynType),
			func(n *groups.Node) any { return n.Metadata() },
			func(n *groups.Node) bool { return len(n.Metadata()) > 0 }),
	},
	localityType.TypeName(): {
		"region":   text(func(n *groups.Node) string { return n.Region }),
		"zone":     text(func(n *groups.Node) string { return n.Zone }),
		"sub_zone": text(func(n *groups.Node) string { return n.SubZone }),
	},
}

func text(get func(n *groups.Node) string) *types.FieldType {
	return field(types.StringType, func(n *groups.Node) any { return get(n) }, func(n *groups.Node) bool { return get(n) != "" })
}

func field(t *types.Type, get func(n *groups.Node) any, isSet func(n *groups.Node) bool) *types.FieldType {
	return &types.FieldType{
		Type: t,
		GetFrom: func(target any) (any, error) {
			n, ok := target.(*groups.Node)
			if !ok {
				return nil, errWhole
			}
			return get(n), nil
		},
		IsSet: func(target any) bool {
			n, ok := target.(*groups.Node)
			return ok && isSet(n)
		},
	}
}

// A provider provides these types to CEL.
type provider struct{ *types.Registry }

func (p provider) FindStructType(name string) (*types.Type, bool) {
	for _, known := range []*types.Type{nodeType, localityType} {
		if known.TypeName() == name {
			return types.NewTypeTypeWithParam(known), true
		}
	}
	return p.Registry.FindStructType(name)
}

func (p provider) FindStructFieldType(structType, name string) (*types.FieldType, bool) {
	if known, ok := fieldsOf[structType]; ok {
		f, ok := known[name]
		return f, ok
	}
	return p.Registry.FindStructFieldType(structType, name)
}

// NativeToValue converts the value of a field to a CEL value.
func (p provider) NativeToValue(v any) ref.Val {
	if _, whole := v.(*groups.Node); whole {
		return types.WrapErr(errWhole)
	}
	return p.Registry.NativeToValue(v)
}

type wholeError struct{}

func (wholeError) Error() string {
	return "node and node.locality cannot be used as values: use one of their fields"
}

var errWhole = wholeError{}

// variables are the variables of one evaluation: the node.
type variables groups.Node

func (v *variables) ResolveName(name string) (any, bool) {
	return (*groups.Node)(v), name == "node"
}

func (v *variables) Parent() cel.Activation { return nil }
