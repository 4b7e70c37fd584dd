package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// Keep names the fields for which the bootstrap file wins over the flags.
type Keep struct{ Node, Cluster, Admin bool }

// serverCluster is the cluster of the server in the bootstraps that Chancery writes.
const serverCluster = "xds"

// Bootstrap returns the bootstrap in a file, or the problems of the file.
func Bootstrap(f File, types *envoy.Types) (protoreflect.Message, []findings.Problem) {
	im := &importer{Options: Options{Types: types}}
	s := &source{Decoder: &protoyaml.Decoder{File: f.Name, Source: f.Data, Types: types, Rewrite: true}}
	docs, err := im.parse(s, f)
	m := types.New(bootstrapName)
	switch p, is := errors.AsType[findings.Problem](err); {
	case is:
		p.Code = findings.Syntax
		return nil, []findings.Problem{p}
	case err != nil:
		return nil, []findings.Problem{{File: f.Name, Code: findings.Syntax, Message: err.Error()}}
	case len(docs) > 0:
		s.Message(without(s.Plain(docs[0]), "@type"), m.Interface(), "")
	}
	if s.Errors() > 0 {
		return nil, slices.DeleteFunc(s.Problems, func(p findings.Problem) bool { return p.Warning })
	}
	return m, nil
}

// Complete returns the bootstrap of a file as JSON. The node, the admin interface, the server's cluster
// and the dynamic_resources come from the JSON bootstrap ours, except as keep says otherwise. The notes
// warn about parts that may not do what the user expects.
func Complete(f File, ours []byte, keep Keep, o Options) (bootstrap []byte, notes []string, problems []findings.Problem) {
	m, problems := Bootstrap(f, o.Types)
	if len(problems) > 0 {
		return nil, nil, problems
	}
	add := o.Types.New(bootstrapName)
	if err := (protojson.UnmarshalOptions{Resolver: o.Types}).Unmarshal(ours, add.Interface()); err != nil {
		panic(fmt.Sprintf("importer: our own bootstrap: %v", err))
	}
	if n := clusters(m).Len(); n > 0 {
		rename(add, free(serverCluster, func(name string) bool {
			for i := range n {
				if field(clusters(m).Get(i).Message(), "name").String() == name {
					return true
				}
			}
			return false
		}))
	}
	merge(m, add, keep)
	if n := field(sub(m, "static_resources"), "listeners").List().Len(); n > 0 {
		many := ""
		if n > 1 {
			many = "s"
		}
		notes = append(notes, fmt.Sprintf("%s has %d listener%s of its own, which no server can change: \"chancery import\" converts them to resources", f.Name, n, many))
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: o.Types}.Marshal(m.Interface())
	if err != nil {
		return nil, nil, []findings.Problem{{File: f.Name, Message: err.Error()}}
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil { // protojson adds spaces at random
		panic(err)
	}
	out.WriteByte('\n')
	return out.Bytes(), notes, nil
}

func clusters(bootstrap protoreflect.Message) protoreflect.List {
	return field(sub(bootstrap, "static_resources"), "clusters").List()
}

// merge copies the fields of add into m, except those to keep.
func merge(m, add protoreflect.Message, keep Keep) {
	fields := m.Descriptor().Fields()
	set := func(name protoreflect.Name) {
		if f := fields.ByName(name); add.Has(f) {
			m.Set(f, add.Get(f))
		}
	}
	set("dynamic_resources")
	node := m.Mutable(fields.ByName("node")).Message()
	for name, kept := range map[protoreflect.Name]bool{"id": keep.Node, "cluster": keep.Cluster} {
		f := node.Descriptor().Fields().ByName(name)
		if !kept || !node.Has(f) {
			node.Set(f, sub(add, "node").Get(f))
		}
	}
	if !keep.Admin {
		f := fields.ByName("admin")
		admin := m.Mutable(f).Message() // keep its access log
		admin.Set(admin.Descriptor().Fields().ByName("address"), sub(add, "admin").Get(admin.Descriptor().Fields().ByName("address")))
	}
	static := m.Mutable(fields.ByName("static_resources")).Message()
	list := static.Mutable(static.Descriptor().Fields().ByName("clusters")).List()
	for i := range clusters(add).Len() {
		list.Append(clusters(add).Get(i))
	}
}

// rename replaces the name of the server's cluster everywhere in the bootstrap.
func rename(bootstrap protoreflect.Message, name string) {
	if name == serverCluster {
		return
	}
	var in func(m protoreflect.Message)
	in = func(m protoreflect.Message) {
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.Name() == "cluster_names":
				v.List().Set(0, protoreflect.ValueOfString(name))
			case fd.Kind() == protoreflect.StringKind && !fd.IsList() && !fd.IsMap() && v.String() == serverCluster:
				m.Set(fd, protoreflect.ValueOfString(name))
			case fd.Message() == nil || fd.IsMap():
			case fd.IsList():
				for i := range v.List().Len() {
					in(v.List().Get(i).Message())
				}
			default:
				in(v.Message())
			}
			return true
		})
	}
	for _, f := range []protoreflect.Name{"dynamic_resources", "static_resources"} {
		in(sub(bootstrap, f))
	}
}
