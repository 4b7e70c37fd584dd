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

// A File is an input of an import, or a part of one.
type File struct {
	Name string
	Data []byte

	// Loose skips a file that is not an Envoy configuration, with a note, instead of reporting an
	// error.
	Loose bool

	Mode fs.FileMode // the mode of a file on disk; 0: the input is not one
}

// Options configure an import. Types is required.
type Options struct {
	Types *envoy.Types

	SplitRoutes bool // turn inline route configurations into resources
	EDS         bool // turn the endpoints of STATIC clusters into resources

	// WithoutRedacted leaves out resources in which the admin interface has replaced a value. Without
	// it each one is an error.
	WithoutRedacted bool
}

// An Output is a file to write.
type Output struct {
	Path   string // relative to the directory, with slashes
	Data   []byte
	Secret bool // contains a secret, so only the owner may read it
}

// A Resource is an imported resource.
type Resource struct {
	Output
	Type  *xds.Type
	Name  string
	Notes []string // changes made to it, such as "had no name"
}

// An Import is the result.
type Import struct {
	Resources []Resource // sorted by path

	Bootstrap *Output  // nil: the input had none
	Stays     []string // the content of Bootstrap, with the reasons
	Clusters  []string // the names of the clusters in Bootstrap

	// HasDynamicResources is set if the bootstrap also got resources from servers or files.
	HasDynamicResources bool

	Notes    []string // further remarks for the user
	Warnings []findings.Problem
}

// BootstrapFile is the name of the bootstrap. Chancery does not read a file whose name begins with "_"
// as resources.
const BootstrapFile = "_bootstrap.yaml"

const (
	apis          = "type.googleapis.com/"
	bootstrapName = "envoy.config.bootstrap.v3.Bootstrap"
	responseName  = "envoy.service.discovery.v3.DiscoveryResponse"
	wrapperName   = "envoy.service.discovery.v3.Resource"
)

// An entry is a resource that is being imported.
type entry struct {
	*source
	typ   *xds.Type
	node  *yaml.Node // its first key is "@type"
	wrap  *yaml.Node // the protocol's Resource around it; may be nil
	name  string
	notes []string

	stays   string // why the resource stays in the bootstrap; "": it does not stay
	dropped bool
	msg     proto.Message
}

func (e *entry) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(e.notes, n) {
		e.notes = append(e.notes, n)
	}
}

// An importer collects the contents of the files.
type importer struct {
	Options
	files   []*source
	only    string // the name of the file, if the caller named a single file
	entries []*entry
	named   map[string]*entry // entries by key; set by reportDuplicates

	boot        *yaml.Node // the remaining bootstrap; nil: no file had one
	bootFrom    *source
	bootMessage proto.Message
	dynamic     *yaml.Node // the dynamic_resources of the bootstrap

	secretsStay     map[string]bool
	finder          *secrets.Finder
	healthDropped   bool // the health of endpoints was removed
	isConfigDump    bool // a file is a config_dump
	dumpedEndpoints bool // a config_dump lists endpoints

	out      Import
	problems []findings.Problem
}

// Do imports files. If a problem is an error, it returns no Import.
func Do(files []File, o Options) (*Import, []findings.Problem) {
	im := &importer{Options: o, secretsStay: map[string]bool{}, finder: secrets.NewFinder(o.Types)}
	for _, f := range files {
		im.read(f)
	}
	if len(files) == 1 && !files[0].Loose {
		im.only = files[0].Name
	}
	for _, step := range []func(){im.reportEmpty, im.nameListeners, im.reportDuplicates, im.dropUnusedEndpoints, im.redirect, im.decide, im.checkRedacted, im.edit, im.decode, im.reportV2, im.render} {
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

// reportEmpty reports an input without resources and without a bootstrap.
func (im *importer) reportEmpty() {
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

// key identifies a resource by its type and name.
func key(t *xds.Type, name string) string { return t.URL + " " + name }

// reportDuplicates reports two resources of the same type and name.
func (im *importer) reportDuplicates() {
	im.named = map[string]*entry{}
	for _, e := range im.entries {
		if was := im.find(e.typ, e.name); was != nil {
			e.Report(e.node, "", "Envoy accepts only one of them", "duplicate %s %q, first at %s:%d", Kind(e.typ), e.name, was.File, was.node.Line)
			continue
		}
		im.named[key(e.typ, e.name)] = e
	}
}

// find returns the entry of a resource; nil if there is none.
func (im *importer) find(t *xds.Type, name string) *entry { return im.named[key(t, name)] }

// addExtracted adds an entry that was part of another one.
func (im *importer) addExtracted(e *entry) {
	im.entries = append(im.entries, e)
	im.named[key(e.typ, e.name)] = e
}

// isServed reports whether the server sends a resource, or any of its type if name is the wildcard. A
// resource that was left out counts: the user has to write its file.
func (im *importer) isServed(t *xds.Type, name string) bool {
	if t == nil {
		return false
	}
	if name == xds.Wildcard {
		return slices.ContainsFunc(im.entries, func(e *entry) bool { return e.typ.Is(t) && e.stays == "" })
	}
	e := im.find(t, name)
	return e != nil && e.stays == ""
}

// decode decodes every entry that will be written, in its final form.
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

// message decodes the current state of the node.
func (e *entry) message() proto.Message {
	return e.Any(without(e.node, extension), "")
}

// extension is the key of options for Chancery, which no client receives.
const extension = "x-chancery"

// hasSecret reports whether a message contains the value of a secret, not only a reference to one.
func (im *importer) hasSecret(m proto.Message) bool {
	return len(im.finder.Find(m).Values) > 0
}

// descriptor returns the message descriptor of a resource type.
func (im *importer) descriptor(t *xds.Type) protoreflect.MessageDescriptor {
	typ, err := im.Types.FindMessageByURL(t.URL)
	if err != nil {
		return nil
	}
	return typ.Descriptor()
}
