package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// Types find the messages in an Any, and that of the rules themselves.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// A Violation is something that Envoy refuses.
type Violation struct {
	Code findings.Code

	// Path is that of the field, such as
	// "filter_chains[0].filters[1].typed_config.stat_prefix"; it need not be set. "": the
	// message itself. What is inside an Any stands below the field that has the Any.
	Path    string
	Message string
	Hint    string

	oneof protoreflect.Name // of which no field is set
}

// A Validator validates messages. It may be used by anyone at any time.
type Validator struct {
	types    Types
	rules    protoreflect.MessageType // validate.FieldRules; nil: nobody knows rules
	programs sync.Map                 // *program by message descriptor

	secrets []string // that Envoy has from its bootstrap

	shallow bool // looks into no Any, as generated validators
}

// New returns a validator that knows the types, and the names of the secrets that Envoy
// has from its bootstrap.
func New(types Types, secrets ...string) *Validator {
	rules, err := types.FindMessageByName("validate.FieldRules")
	if err != nil {
		rules = nil
	}
	return &Validator{types: types, rules: rules, secrets: secrets}
}

// Validate returns what Envoy would refuse in a message, sorted by path. It may quote
// numbers of the message, words that make it ambiguous such as domains, and no more.
func (v *Validator) Validate(m proto.Message) []Violation {
	w := walk{Validator: v}
	w.message(m.ProtoReflect())
	slices.SortStableFunc(w.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code))
	})
	// What is below zero is usually below what a rule says, too.
	return slices.CompactFunc(w.found, func(b, a Violation) bool {
		return a.Path == b.Path && a.Code == findings.InvalidValue && b.Code == findings.NegativeDuration
	})
}

// deepest is how many Anys may stand in each other, each of which has all the bytes of
// those in it.
const deepest = 64

// A walk goes through a message and all that are in it.
type walk struct {
	*Validator
	at    []step
	anys  int
	found []Violation
}

type step struct {
	field protoreflect.FieldDescriptor
	index int
	key   protoreflect.MapKey
}

func (s step) String() string {
	name := string(s.field.Name())
	switch {
	case s.field.IsList() && s.index >= 0:
		return name + "[" + strconv.Itoa(s.index) + "]"
	case s.field.IsMap() && s.key.IsValid():
		return name + "[" + strconv.Quote(s.key.String()) + "]"
	}
	return name
}

// report adds a violation at the path where the walk is, and below that.
func (w *walk) report(code findings.Code, below, hint, format string, args ...any) {
	var path []string
	for _, s := range w.at {
		path = append(path, s.String())
	}
	if below != "" {
		path = append(path, below)
	}
	w.found = append(w.found, Violation{Code: code, Path: strings.Join(path, "."), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// breaks adds a violation of a rule for a field of the message where the walk is, "" for
// the field where it is. Of what is sensitive not even a number is quoted.
func (w *walk) breaks(f protoreflect.FieldDescriptor, below, wrong string) {
	if secrets.Marked(f) || slices.ContainsFunc(w.at, func(s step) bool { return secrets.Marked(s.field) }) {
		wrong, _, _ = strings.Cut(wrong, quoted)
	}
	w.report(findings.InvalidValue, below, "", "%s", wrong)
}

// quoted stands before a value in what is wrong with it.
const quoted = ", not "

func (w *walk) message(m protoreflect.Message) {
	switch name := m.Descriptor().FullName(); {
	case name == "google.protobuf.Any":
		w.any(m)
		return
	case name == "google.protobuf.Duration":
		w.duration(m)
		return
	case name.Parent() == "google.protobuf":
		return
	}
	p := w.program(m.Descriptor())
	if p.disabled {
		return
	}
	for _, c := range p.checks {
		c.run(w, m)
	}
	for _, o := range p.oneofs {
		if m.WhichOneof(o) == nil {
			w.report(findings.MissingField, "", "", "one of %s is required in %s", oneOf(o), m.Descriptor().Name())
			w.found[len(w.found)-1].oneof = o.Name()
		}
	}
	if p.own != nil {
		p.own(w, m)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if p.below[f.Index()] {
			w.below(f, v)
		}
		return true
	})
}

// oneOf lists the fields of a oneof.
func oneOf(o protoreflect.OneofDescriptor) string {
	var names []string
	for i := range min(o.Fields().Len(), 8) {
		names = append(names, string(o.Fields().Get(i).Name()))
	}
	if o.Fields().Len() > len(names) {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

// below goes through the messages in a field.
func (w *walk) below(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	last := len(w.at)
	w.at = append(w.at, step{field: f})
	switch {
	case f.IsMap():
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			w.at[last].key = k
			w.message(v.Message())
			return true
		})
	case f.IsList():
		for i := range v.List().Len() {
			w.at[last].index = i
			w.message(v.List().Get(i).Message())
		}
	default:
		w.message(v.Message())
	}
	w.at = w.at[:last]
}

func (w *walk) any(m protoreflect.Message) {
	if w.shallow || w.anys == deepest {
		return
	}
	inner := w.inside(m)
	if inner == nil {
		return
	}
	w.anys++
	w.message(inner)
	w.anys--
}

// inside returns the message in an Any, nil if it cannot be read.
func (w *walk) inside(m protoreflect.Message) protoreflect.Message {
	fields := m.Descriptor().Fields()
	typ, err := w.types.FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil {
		return nil
	}
	inner := typ.New()
	if (proto.UnmarshalOptions{Resolver: w.types}).Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()) != nil {
		return nil
	}
	return inner
}

// duration looks at a Duration, of which Envoy takes none below zero, whatever the field.
func (w *walk) duration(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if m.Get(fields.ByName("seconds")).Int() < 0 || m.Get(fields.ByName("nanos")).Int() < 0 {
		w.report(findings.NegativeDuration, "", "", "must not be negative")
	}
}
