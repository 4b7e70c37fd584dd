package importer

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// A File is what is imported, or a part of it.
type File struct {
	Name string
	Data []byte

	// Loose: a file that is none of Envoy's is passed over, with a note.
	Loose bool

	Mode fs.FileMode // of a file that was read; 0: it is none
}

// Options say how to import. Types are needed.
type Options struct {
	Types *envoy.Types

	SplitRoutes bool // inline route configurations become resources
	EDS         bool // endpoints of STATIC clusters become resources

	// WithoutRedacted leaves out resources of which the admin interface has replaced a value.
	// Without it they are errors.
	WithoutRedacted bool
}

// An Output is a file to write.
type Output struct {
	Path   string // below the directory, with slashes
	Data   []byte
	Secret bool // has a secret: for its owner alone
}

// A Resource is one that was imported.
type Resource struct {
	Output
	Type  *xds.Type
	Name  string
	Notes []string // what was changed, such as "had no name"
}

// An Import is the result.
type Import struct {
	Resources []Resource // in the order of the layout

	Bootstrap *Output  // nil: there was none
	Stays     []string // what is in it, and why
	Clusters  []string // the names of the clusters in it

	// Elsewhere is set if the bootstrap had its resources from elsewhere, too.
	Elsewhere bool

	Notes    []string // what else is worth knowing
	Warnings []findings.Problem
}

// BootstrapFile is the name of the bootstrap; no file with a "_" at the beginning is
// taken for resources.
const BootstrapFile = "_bootstrap.yaml"

const (
	apis          = "type.googleapis.com/"
	bootstrapName = "envoy.config.bootstrap.v3.Bootstrap"
	responseName  = "envoy.service.discovery.v3.DiscoveryResponse"
	wrapperName   = "envoy.service.discovery.v3.Resource"
)

// An entry is a resource on its way.
type entry struct {
	*source
	typ   *xds.Type
	node  *yaml.Node // begins with "@type"
	wrap  *yaml.Node // the protocol's Resource around it; may be nil
	name  string
	notes []string

	stays   string // why it stays in the bootstrap; "": it does not
	dropped bool
	msg     proto.Message
}

func (e *entry) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(e.notes, n) {
		e.notes = append(e.notes, n)
	}
}

// An importer collects what files have.
type importer struct {
	Options
	files   []*source
	only    string // the name of the file, if it was given by its name
	entries []*entry
	named   map[string]*entry // entries by what key returns, once they are unique

	boot        *yaml.Node // what is left of the bootstrap; nil: none was there
	bootFrom    *source
	bootMessage proto.Message
	dynamic     *yaml.Node // its dynamic_resources

	secretsStay map[string]bool
	finder      *secrets.Finder
	forgot      bool // the health of endpoints
	ofAdmin     bool // an Envoy tells of itself
	dumped      bool // there are endpoints of which an Envoy has told

	out      Import
	problems []findings.Problem
}

// Do imports files. With problems that are errors there is no import.
func Do(files []File, o Options) (*Import, []findings.Problem) {
	im := &importer{Options: o, secretsStay: map[string]bool{}, finder: secrets.NewFinder(o.Types)}
	for _, f := range files {
		im.read(f)
	}
	if len(files) == 1 && !files[0].Loose {
		im.only = files[0].Name
	}
	for _, step := range []func(){im.empty, im.nameListeners, im.unique, im.redacted, im.leaveInline, im.redirect, im.decide, im.edit, im.decode, im.old, im.render} {
		if im.failed() {
			break
		}
		step()
	}
	for _, f := range im.files {
		im.problems = append(im.problems, f.Problems...)
	}
	for i, p := range im.problems {
		if p.Hint == "" && strings.HasPrefix(p.Message, "no message type is known") {
			im.problems[i].Hint = "--proto-set FILE adds messages that Envoy's API does not have"
		}
	}
	errs := slices.DeleteFunc(slices.Clone(im.problems), func(p findings.Problem) bool { return p.Warning })
	if len(errs) > 0 {
		return nil, errs
	}
	im.out.Warnings = im.problems
	return &im.out, nil
}

func (im *importer) failed() bool {
	return len(im.problems) > 0 || slices.ContainsFunc(im.files, func(f *source) bool { return f.Errors() > 0 })
}

func (im *importer) note(format string, args ...any) {
	im.out.Notes = append(im.out.Notes, fmt.Sprintf(format, args...))
}

func (im *importer) fail(file, hint, format string, args ...any) {
	im.problems = append(im.problems, findings.Problem{File: file, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// empty refuses what has nothing to import.
func (im *importer) empty() {
	if len(im.entries) == 0 && im.boot == nil {
		name := "the directory"
		if im.only != "" {
			name = im.only
		}
		if len(im.files) > 0 {
			name = im.files[0].File
		}
		im.fail(name, "it must contain a bootstrap, a config_dump or a DiscoveryResponse", "there is nothing to import")
	}
}

// key returns what a resource alone has.
func key(t *xds.Type, name string) string { return t.URL + " " + name }

// unique refuses two resources of one type and name.
func (im *importer) unique() {
	im.named = map[string]*entry{}
	for _, e := range im.entries {
		if was := im.find(e.typ, e.name); was != nil {
			e.Report(e.node, "", "Envoy accepts only one of them", "duplicate %s %q, first at %s:%d", Kind(e.typ), e.name, was.File, was.node.Line)
			continue
		}
		im.named[key(e.typ, e.name)] = e
	}
}

// find returns an entry; nil if there is none.
func (im *importer) find(t *xds.Type, name string) *entry { return im.named[key(t, name)] }

// grow adds an entry that was part of another one.
func (im *importer) grow(e *entry) {
	im.entries = append(im.entries, e)
	im.named[key(e.typ, e.name)] = e
}

// serves reports whether resources of a type, all or the one of a name, are imported, or
// left for somebody to write.
func (im *importer) serves(t *xds.Type, name string) bool {
	if t == nil {
		return false
	}
	if name == xds.Wildcard {
		return slices.ContainsFunc(im.entries, func(e *entry) bool { return e.typ.Is(t) && e.stays == "" })
	}
	e := im.find(t, name)
	return e != nil && e.stays == ""
}

// decode reads all that is going to be written, as it is now.
func (im *importer) decode() {
	for _, e := range im.entries {
		if !e.dropped {
			e.msg = e.message()
		}
	}
	if im.boot != nil {
		m := im.Types.New(bootstrapName).Interface()
		im.bootFrom.Message(im.boot, m, "")
		im.bootMessage = m
	}
}

// message returns the message that a node is now.
func (e *entry) message() proto.Message {
	return e.Any(without(e.node, extension), "")
}

// extension is the key of what is said to the server alone.
const extension = "x-chancery"

// hasSecret reports whether a message has a secret in it, and not where one is.
func (im *importer) hasSecret(m proto.Message) bool {
	return len(im.finder.Find(m).Values) > 0
}

// descriptor returns what a resource's messages are described by.
func (im *importer) descriptor(t *xds.Type) protoreflect.MessageDescriptor {
	typ, err := im.Types.FindMessageByURL(t.URL)
	if err != nil {
		return nil
	}
	return typ.Descriptor()
}
