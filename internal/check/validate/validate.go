package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// Types finds the message types of Anys, and the type of the rules.
type Types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// A Violation is a mistake for which Envoy rejects the message.
type Violation struct {
	Code findings.Code

	// Path is the path of the field, such as "filter_chains[0].filters[1].typed_config.stat_prefix".
	// The field may be unset. "" means the message itself. The path of a field inside an Any continues
	// the path of the Any's field.
	Path    string
	Message string
	Hint    string

	oneof protoreflect.Name // the oneof without a field, for a violation of that kind
}

// A Validator validates messages. It is safe for concurrent use.
type Validator struct {
	types    Types
	rules    protoreflect.MessageType // validate.FieldRules; nil: unknown, so no rules are checked
	programs sync.Map                 // *program by message descriptor

	secrets atomic.Pointer[[]string] // names of the secrets in Envoy's bootstrap

	shallow bool // do not check inside Anys, like generated validators
}

// New returns a validator. Secrets are the names of the secrets in Envoy's bootstrap.
func New(types Types, secrets ...string) *Validator {
	rules, err := types.FindMessageByName("validate.FieldRules")
	if err != nil {
		rules = nil
	}
	v := &Validator{types: types, rules: rules}
	v.SetSecrets(secrets)
	return v
}

// SetSecrets replaces the names of the secrets in Envoy's bootstrap. Any goroutine may call it.
func (v *Validator) SetSecrets(names []string) { v.secrets.Store(&names) }

// Validate returns the violations in a message, sorted by path. Their texts quote only numbers and
// ambiguous names, such as domains.
func (v *Validator) Validate(m proto.Message) []Violation { return v.Review(m, math.MaxInt) }

// Review returns the violations, and the regular expressions that an Envoy rejects whose limit for their size is
// maxProgram.
func (v *Validator) Review(m proto.Message, maxProgram int) []Violation {
	w := walk{Validator: v, maxProgram: maxProgram}
	w.message(m.ProtoReflect())
	slices.SortStableFunc(w.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code))
	})
	// A negative duration usually violates its rule too; report it once.
	return slices.CompactFunc(w.found, func(b, a Violation) bool {
		return a.Path == b.Path && a.Code == findings.InvalidValue && b.Code == findings.NegativeDuration
	})
}

// maxAnyDepth is the maximum nesting of Anys, because each Any contains the bytes of all Anys inside it.
const maxAnyDepth = 64

// A walk visits a message and all messages inside it.
type walk struct {
	*Validator
	maxProgram int // the limit for the size of a regular expression
	at         []step
	anys       int
	found      []Violation
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

// report adds a violation at the current path plus below.
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

// reportRule adds a violation of a declared rule, for a field of the current message, or for the current
// field if below is "". For a sensitive field it does not quote even a number.
func (w *walk) reportRule(f protoreflect.FieldDescriptor, below, wrong string) {
	if secrets.Marked(f) || slices.ContainsFunc(w.at, func(s step) bool { return secrets.Marked(s.field) }) {
		wrong, _, _ = strings.Cut(wrong, quoted)
	}
	w.report(findings.InvalidValue, below, "", "%s", wrong)
}

// quoted separates the rule from the quoted value in a violation's text.
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

// below visits the messages in a field.
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
	if w.shallow || w.anys == maxAnyDepth {
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

// inside returns the message in an Any; nil if it cannot be decoded.
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

// duration reports a negative Duration. Envoy rejects it in every field.
func (w *walk) duration(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if m.Get(fields.ByName("seconds")).Int() < 0 || m.Get(fields.ByName("nanos")).Int() < 0 {
		w.report(findings.NegativeDuration, "", "", "must not be negative")
	}
}
