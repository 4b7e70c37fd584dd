package export

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/refs"
	"github.com/chancery-xds/chancery/xds"
)

// A piece is a resource as it stands in a file.
type piece struct {
	name    string
	version string
	data    []byte

	needs    []xds.Ref // what its ConfigSources lead to
	warnings []string
	folded   bool // other resources are part of it
}

// A rewriter makes a piece of a resource.
type rewriter struct {
	*Exporter
	view  xds.Tables
	hosts map[string][]*xds.Resource // virtual hosts by route configuration

	piece
	err error
}

// rewrite returns a resource as it is exported.
func (w rewriter) rewrite(t *xds.Type, r *xds.Resource) (*piece, error) {
	fail := func(err error) error {
		return fmt.Errorf("%s %q cannot be written as %s: %w", t, r.Name, w.Format, err)
	}
	a := &anypb.Any{TypeUrl: t.URL, Value: r.Body}
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(t.URL)
	if err != nil {
		return nil, fail(err)
	}
	m := typ.New().Interface()
	if err := proto.Unmarshal(r.Body, m); err != nil {
		return nil, fail(err)
	}
	w.name, w.version = r.Name, r.Version
	changed := refs.Edit(m, w.message)
	if w.err != nil {
		return nil, fail(w.err)
	}
	if changed {
		if a.Value, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			return nil, fail(err)
		}
	}
	if w.data, err = w.Format.piece(a); err != nil {
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
		w.err = fmt.Errorf("%s has fields that this program does not know: pb keeps them", place(at, m))
	}
	if w.KeepSources {
		return false
	}
	folded, err := w.fold(m.Interface())
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%s: %w", place(at, m), err)
	}
	if folded {
		w.folded, changed = true, true
	}
	for _, s := range refs.Sources(m) {
		if s.Type == nil || s.Name == "" {
			w.warn("%s: %s stays as it is: Envoy cannot have that from a file", place(at, m), s.Field)
			continue
		}
		path := w.Format.pathOf(s.Type, s.Name)
		w.source(path, s.Config.Interface().(*corev3.ConfigSource))
		w.needs, changed = append(w.needs, xds.Ref{Type: s.Type, Name: s.Name}), true
	}
	return changed
}

// source makes a ConfigSource lead to a file of the export.
func (e *Exporter) source(path string, c *corev3.ConfigSource) {
	c.Authorities, c.ResourceApiVersion = nil, corev3.ApiVersion_V3
	c.ConfigSourceSpecifier = &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{
		Path:             e.at(path),
		WatchedDirectory: &corev3.WatchedDirectory{Path: e.Prefix},
	}}
}

func (w *rewriter) warn(format string, args ...any) {
	w.warnings = append(w.warnings, fmt.Sprintf(format, args...))
}

// place says where a message stands in a resource.
func place(at refs.Path, m protoreflect.Message) string {
	if len(at) == 0 {
		return string(m.Descriptor().Name())
	}
	return at.String()
}
