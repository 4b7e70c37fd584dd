package dir

import (
	"cmp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/findings"
)

// A responseInfo has the fields of a response that apply to all of its resources.
type responseInfo struct{ typeURL, version string }

// responseInfo returns the type and version of a response; the node of its type_url may be nil. It reports an
// unknown type once, so that not each resource reports it.
func (d *decoder) responseInfo(response protoreflect.Message, at *yaml.Node) responseInfo {
	s := responseInfo{get(response, "type_url").String(), get(response, "version_info").String()}
	if s.typeURL == "" {
		return s
	}
	at = cmp.Or(at, whole)
	if !strings.HasPrefix(s.typeURL, apis) {
		d.ReportAs(findings.UnknownType, at, "type_url", d.SuggestType(s.typeURL), "this must be a full type URL, which begins with %s", apis)
		s.typeURL = ""
	} else if _, err := d.types.FindMessageByURL(s.typeURL); err != nil {
		d.UnknownType(at, s.typeURL, "type_url")
		s.typeURL = ""
	}
	return s
}

// get returns the value of a field; the message must have it.
func get(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}

// A wrapperFields has the fields of the wrapper of a resource.
type wrapperFields struct {
	name, version string
	aliases       []string
	ttl           *time.Duration    // nil: none
	unsupported   protoreflect.Name // a field that the store cannot keep; "": none

	nameAt, ttlAt *yaml.Node // nil: unknown
	onDemand      bool

	groups *groupNames // nil: the resource is in the group of its file
}

// read reads the fields of a wrapper.
func (w *wrapperFields) read(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if !m.Has(f) {
			continue
		}
		v := m.Get(f)
		switch f.Name() {
		case "name":
			w.name = v.String()
		case "version":
			w.version = v.String()
		case "aliases":
			for i := range v.List().Len() {
				w.aliases = append(w.aliases, v.List().Get(i).String())
			}
		case "ttl":
			ttl := durationpb.Duration{Seconds: get(v.Message(), "seconds").Int(), Nanos: int32(get(v.Message(), "nanos").Int())}
			w.ttl = new(ttl.AsDuration())
		case "resource":
		default:
			w.unsupported = f.Name()
		}
	}
}
