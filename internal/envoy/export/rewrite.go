package export

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// A piece is an encoded resource, as it appears in a file.
type piece struct {
	name    string
	version string
	data    []byte

	addresses *[]xds.Address // that Envoy binds for it

	needs    []xds.Ref // the targets of its ConfigSources
	warnings []string
	folded   bool // it contains other resources
}

// A rewriter converts a resource to a piece.
type rewriter struct {
	*Exporter
	view  xds.Tables
	hosts map[string][]*xds.Resource // virtual hosts by route configuration

	piece
	err error
}

// rewrite returns the exported form of a resource.
func (w rewriter) rewrite(t *xds.Type, r *xds.Resource) (*piece, error) {
	fail := func(err error) error {
		return fmt.Errorf("%s %q cannot be written as %s: %w", t, r.Name, w.Format, err)
	}
	a := &anypb.Any{TypeUrl: t.URL, Value: r.Body}
	typ, err := w.Types.FindMessageByURL(t.URL)
	if err != nil {
		return nil, fail(err)
	}
	m := typ.New().Interface()
	if err := (proto.UnmarshalOptions{Resolver: w.Types}).Unmarshal(r.Body, m); err != nil {
		return nil, fail(err)
	}
	w.name, w.version = r.Name, r.Version
	changed := refs.Edit(w.Types, m, w.message)
	if w.err != nil {
		return nil, fail(w.err)
	}
	if changed {
		a.Value, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return nil, fail(err)
		}
	}
	w.data, err = w.Format.piece(w.Types, a)
	if err != nil {
		return nil, fail(err)
	}
	for i, s := range w.warnings {
		w.warnings[i] = fmt.Sprintf("%s %q: %s", t, r.Name, s)
	}
	return &w.piece, nil
}

// message rewrites the ConfigSources in the fields of a message.
func (w *rewriter) message(m protoreflect.Message, at refs.Path) (changed bool) {
	if len(m.GetUnknown()) > 0 && !w.Format.lossless && w.err == nil {
		w.err = fmt.Errorf("%s has fields that this program does not know: use --format pb, which keeps them", place(at, m))
	}
	if w.KeepSources {
		return false
	}
	folded, err := w.fold(m)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%s: %w", place(at, m), err)
	}
	if folded {
		w.folded, changed = true, true
	}
	for _, s := range refs.Sources(m) {
		if s.Type == nil || s.Name == "" {
			w.warn("%s: %s is unchanged: Envoy cannot read it from a file", place(at, m), s.Field)
			continue
		}
		path := w.Format.pathOf(s.Type, s.Name)
		w.source(path, s.Config)
		w.needs, changed = append(w.needs, xds.Ref{Type: s.Type, Name: s.Name}), true
	}
	return changed
}

// source points a ConfigSource to a file of the export.
func (e *Exporter) source(path string, c protoreflect.Message) {
	const v3 = 2 // envoy.config.core.v3.ApiVersion
	unset(c, "authorities")
	set(c, "resource_api_version", protoreflect.ValueOfEnum(v3))
	unset(c, "path_config_source")
	file := mutable(c, "path_config_source")
	set(file, "path", protoreflect.ValueOfString(e.at(path)))
	set(mutable(file, "watched_directory"), "path", protoreflect.ValueOfString(e.Prefix))
}

// The helpers below access fields by name. The fields must exist.

func get(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}

func has(m protoreflect.Message, field protoreflect.Name) bool {
	return m.Has(m.Descriptor().Fields().ByName(field))
}

func set(m protoreflect.Message, field protoreflect.Name, v protoreflect.Value) {
	m.Set(m.Descriptor().Fields().ByName(field), v)
}

func unset(m protoreflect.Message, field protoreflect.Name) {
	m.Clear(m.Descriptor().Fields().ByName(field))
}

func mutable(m protoreflect.Message, field protoreflect.Name) protoreflect.Message {
	return m.Mutable(m.Descriptor().Fields().ByName(field)).Message()
}

func (w *rewriter) warn(format string, args ...any) {
	w.warnings = append(w.warnings, fmt.Sprintf(format, args...))
}

// place describes the position of a message in a resource.
func place(at refs.Path, m protoreflect.Message) string {
	if len(at) == 0 {
		return string(m.Descriptor().Name())
	}
	return at.String()
}
