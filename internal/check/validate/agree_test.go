package validate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	_ "github.com/cncf/xds/go/xds/type/matcher/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/oauth2/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
)

// The validator agrees with the generated validators, field by field. The test uses random messages of
// all linked types, most of them invalid.
func TestAgreesWithGenerated(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	v := New(envoy.Envoy())
	v.shallow = true
	messages, good, found := 0, 0, 0
	var types []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		types = append(types, m)
		return true
	})
	slices.SortFunc(types, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	for _, typ := range types {
		mt, err := envoy.Envoy().FindMessageByName(typ.Descriptor().FullName())
		generated, ok := typ.New().Interface().(interface{ ValidateAll() error })
		if err != nil || !ok {
			continue
		}
		for range 40 {
			m := mt.New()
			randomize(rnd, m, 3)
			b, err := proto.Marshal(m.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if err := proto.Unmarshal(b, generated.(proto.Message)); err != nil {
				t.Fatal(typ.Descriptor().FullName(), err)
			}
			var theirs []string
			flatten(generated.ValidateAll(), "", &theirs)
			theirs = slices.DeleteFunc(theirs, func(path string) bool { return strings.Contains(path, "apilistener.") })
			ours := fieldsOf(v.Validate(m.Interface()))
			slices.Sort(theirs)
			messages++
			found += len(theirs)
			if theirs = slices.Compact(theirs); len(theirs) == 0 {
				good++
			}
			if !slices.Equal(ours, theirs) {
				t.Fatalf("%s\nours   %q\ntheirs %q\n%v\n%v", typ.Descriptor().FullName(), ours, theirs, generated, generated.ValidateAll())
			}
		}
	}
	t.Logf("%d messages, %d of them good, %d violations", messages, good, found)
	if messages < 10_000 || good < 1000 || found < 10_000 {
		t.Error("too few messages to compare")
	}
}

// fieldsOf returns the fields with violations of the API's rules, in the spelling of generated
// validators.
func fieldsOf(all []Violation) (fields []string) {
	for _, v := range all {
		if v.Code != findings.InvalidValue && v.Code != findings.MissingField {
			continue
		}
		path := v.Path
		if v.oneof != "" {
			path += "." + string(v.oneof)
		}
		fields = append(fields, plain(path))
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

func plain(path string) string {
	path = strings.NewReplacer("_", "", `"`, "", `\n`, "\n", `\x00`, "\x00").Replace(path)
	return strings.ToLower(strings.Trim(path, "."))
}

// flatten adds the paths of all violations in an error of a generated validator.
func flatten(err error, at string, to *[]string) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ AllErrors() []error }); ok {
		for _, e := range many.AllErrors() {
			flatten(e, at, to)
		}
		return
	}
	one, ok := err.(interface {
		Field() string
		Reason() string
		Cause() error
	})
	if !ok {
		*to = append(*to, at+"?"+err.Error())
		return
	}
	at = at + "." + one.Field()
	if one.Cause() != nil && one.Reason() == "embedded message failed validation" {
		flatten(one.Cause(), at, to)
		return
	}
	*to = append(*to, plain(at))
}

// randomize sets some fields of a message, often to values at the edge of a rule.
func randomize(rnd *rand.Rand, m protoreflect.Message, depth int) {
	switch name := m.Descriptor().FullName(); name {
	case "google.protobuf.Any":
		m.Set(m.Descriptor().Fields().ByName("type_url"), protoreflect.ValueOfString("type.googleapis.com/google.protobuf.Empty"))
		return
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return
	case "google.protobuf.Duration", "google.protobuf.Timestamp":
		m.Set(m.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(pick[int64](rnd, 0, 1, 60, 100_000)))
		m.Set(m.Descriptor().Fields().ByName("nanos"), protoreflect.ValueOfInt32(pick[int32](rnd, 0, 1, 999, 1_000_000)))
		return
	}
	fields := m.Descriptor().Fields()
	few := max(2, fields.Len()/6)
	for i := range fields.Len() {
		f := fields.Get(i)
		if rnd.IntN(few) > 1 && option(f.Options(), fieldRules) == nil || rnd.IntN(4) == 0 {
			continue
		}
		switch {
		case f.IsMap():
			for range rnd.IntN(3) {
				if v, ok := value(rnd, f.MapValue(), depth, m.Mutable(f).Map().NewValue); ok {
					k, _ := value(rnd, f.MapKey(), depth, nil)
					m.Mutable(f).Map().Set(k.MapKey(), v)
				}
			}
		case f.IsList():
			l := m.Mutable(f).List()
			for range rnd.IntN(3) {
				if v, ok := value(rnd, f, depth, l.NewElement); ok {
					l.Append(v)
				}
			}
		default:
			if v, ok := value(rnd, f, depth, func() protoreflect.Value { return m.NewField(f) }); ok {
				m.Set(f, v)
			}
		}
	}
}

func pick[T any](rnd *rand.Rand, all ...T) T { return all[rnd.IntN(len(all))] }

func value(rnd *rand.Rand, f protoreflect.FieldDescriptor, depth int, message func() protoreflect.Value) (protoreflect.Value, bool) {
	n := pick[uint32](rnd, 0, 1, 2, 7, 99, 100, 101, 1000, 65535, 65536, 1<<31-1)
	switch f.Kind() {
	case protoreflect.MessageKind:
		if depth == 0 {
			return protoreflect.Value{}, false
		}
		v := message()
		randomize(rnd, v.Message(), depth-1)
		return v, true
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(pick[protoreflect.EnumNumber](rnd, 0, 1, 2, 3, 77)), true
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(pick(rnd, "", "a", "a", "x-header", "b c", "ends\n", "/path", "https://a.example/x", "\x00", fmt.Sprint("s", n), strings.Repeat("ü", 70), "POST")), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, n%5)), true
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rnd.IntN(2) == 1), true
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n) - 1), true
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n) - 1), true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(n), true
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n)), true
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n)/100 - 1), true
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n)/100 - 1), true
	}
	return protoreflect.Value{}, false
}

// Every kind of rule in Envoy's API is implemented.
func TestKnowsAllRules(t *testing.T) {
	v := New(envoy.Envoy())
	checks, oneofs := 0, 0
	envoy.Envoy().RangeMessages(func(m protoreflect.MessageType) bool {
		p := v.program(m.Descriptor())
		for _, rule := range p.unknown {
			t.Errorf("%s: rule %s is not implemented", m.Descriptor().FullName(), rule)
		}
		checks += len(p.checks)
		oneofs += len(p.oneofs)
		return true
	})
	t.Logf("%d fields and %d oneofs with rules", checks, oneofs)
	if checks < 1000 || oneofs < 100 {
		t.Error("no messages with rules")
	}
}
