package tree

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/xds"
)

// refsOf returns the references in the resource's Stamp. If they are unknown (nil), it returns the
// references in the resource's message.
func refsOf(r *xds.Resource) []xds.Ref {
	if r.Refs != nil {
		return r.Refs
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(r.Type.URL)
	if err != nil {
		return nil
	}
	m := typ.New().Interface()
	if proto.Unmarshal(r.Body, m) != nil {
		return nil
	}
	return refs.Of(m)
}
