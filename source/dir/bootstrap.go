package dir

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/check/validate"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/xds"
)

// BootstrapFile is the name of the bootstrap of the clients that get the resources of a directory: see
// [Options.ReadBootstraps].
const BootstrapFile = importer.BootstrapFile

func isBootstrapFile(path string) bool { return filepath.Base(path) == BootstrapFile }

// needsBootstraps are the findings that are wrong if a bootstrap is unknown.
var needsBootstraps = []findings.Code{findings.Dangling, findings.UnknownCluster, findings.Unused, findings.SecretSource}

// A Bootstrap is a file with the bootstrap of clients (envoy.config.bootstrap.v3.Bootstrap).
type Bootstrap struct {
	File    string
	Message proto.Message
}

// A bootstrapSet has the known bootstraps of the clients. It does not change once made.
type bootstrapSet struct {
	all       bootstrapContent            // of all clients
	groups    map[string]bootstrapContent // of the nodes of a group, by the directory of the group
	groupDirs map[string]bool             // the directories of all groups

	files   map[string]*file   // the files, by path
	scanned []findings.Problem // problems of paths
}

// A bootstrapContent has the resources and references in the bootstraps of some clients.
type bootstrapContent struct {
	clusters map[string]bool
	secrets  []string // static secrets: a resource can name one without a source; with a source, the client subscribes to it
	refs     []xds.Ref
	known    bool // there is a bootstrap, perhaps an unreadable one
	complete bool // all of them could be read, and all clusters come from them or from a server

	// maxProgram is the smallest limit for the size of a regular expression, because each Envoy must accept it.
	maxProgram int
}

// add adds the resources and references of a bootstrap; nil: the bootstrap could not be read.
func (b *bootstrapContent) add(types *Types, m proto.Message) {
	if !b.known {
		b.clusters, b.known, b.complete, b.maxProgram = map[string]bool{}, true, true, math.MaxInt
	}
	if m == nil {
		b.complete, b.maxProgram = false, min(b.maxProgram, validate.MaxProgram)
		return
	}
	b.maxProgram = min(b.maxProgram, maxProgram(m))
	dynamic := get(m.ProtoReflect(), "dynamic_resources").Message()
	source := get(dynamic, "cds_config").Message()
	if path := source.WhichOneof(source.Descriptor().Oneofs().ByName("config_source_specifier")); path != nil && strings.HasPrefix(string(path.Name()), "path") {
		b.complete = false
	}
	for _, ref := range refs.With(types, m) {
		// A bootstrap may contain messages of unknown types, such as values of the runtime. They
		// count as a wildcard reference to clusters. Only a wildcard of the listeners and clusters
		// below is likely to be real.
		if ref.Name != xds.Wildcard {
			b.refs = append(b.refs, ref)
		}
	}
	for _, l := range list(m, "listeners") {
		b.refs = append(b.refs, refs.With(types, l.Interface())...)
	}
	for _, c := range list(m, "clusters") {
		b.clusters[get(c, "name").String()] = true
		b.refs = append(b.refs, refs.With(types, c.Interface())...)
	}
	for _, s := range list(m, "secrets") {
		b.secrets = append(b.secrets, get(s, "name").String())
	}
}

// maxProgram returns the limit for the size of a regular expression in the static runtime of a bootstrap. Of several
// layers, the last one with the value counts. Layers of other kinds are not known.
func maxProgram(bootstrap proto.Message) int {
	limit := validate.MaxProgram
	layers := get(get(bootstrap.ProtoReflect(), "layered_runtime").Message(), "layers").List()
	for i := range layers.Len() {
		if v := runtimeValue(get(layers.Get(i).Message(), "static_layer").Message(), validate.MaxProgramKey); v != nil {
			n, ok := get(v, "number_value").Float(), true
			if !v.Has(v.Descriptor().Fields().ByName("number_value")) {
				n, ok = runtimeNumber(get(v, "string_value").String())
			}
			limit = validate.MaxProgram // Envoy 1.40 uses the default for other values than numbers from 0 to 2^64
			if ok && n >= 0 && n <= 1<<64 {
				limit = int(math.Mod(n, 1<<32)) // Envoy drops the upper bits
			}
		}
	}
	return limit
}

// runtimeNumber parses a text as a number, as the runtime of Envoy does: decimal or hexadecimal, with white space
// around it, and without octal numbers and underscores.
func runtimeNumber(s string) (n float64, ok bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	switch {
	case strings.Contains(s, "_"): // Go accepts underscores in hexadecimal numbers
		return 0, false
	case strings.ContainsAny(s, "xX") && !strings.ContainsAny(s, "pP"): // Go requires an exponent in hexadecimal numbers
		s += "p0"
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// runtimeValue returns the google.protobuf.Value with a key in a layer of the runtime, or nil. The components of a key
// may be one key, or keys of nested objects.
func runtimeValue(layer protoreflect.Message, key string) (found protoreflect.Message) {
	get(layer, "fields").Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if k.String() == key {
			found = v.Message()
		} else if below, ok := strings.CutPrefix(key, k.String()+"."); ok {
			found = runtimeValue(get(v.Message(), "struct_value").Message(), below)
		}
		return found == nil
	})
	return found
}

// list returns the static resources of a kind in a bootstrap.
func list(bootstrap proto.Message, kind protoreflect.Name) (all []protoreflect.Message) {
	items := get(get(bootstrap.ProtoReflect(), "static_resources").Message(), kind).List()
	for i := range items.Len() {
		all = append(all, items.Get(i).Message())
	}
	return all
}

// newBootstrapSet returns the bootstraps of the options and the files. The group of a directory in roots has
// all clients.
func newBootstrapSet(types *Types, given []proto.Message, roots []string, groupDirs map[string]bool, files map[string]*file, scanned []findings.Problem) *bootstrapSet {
	b := &bootstrapSet{groups: map[string]bootstrapContent{}, groupDirs: groupDirs, files: files, scanned: scanned}
	for _, m := range given {
		b.all.add(types, m)
	}
	add := func(path string, m proto.Message) {
		dir := filepath.Dir(path)
		if slices.Contains(roots, dir) {
			b.all.add(types, m)
			return
		}
		of := b.groups[dir]
		of.add(types, m)
		b.groups[dir] = of
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		add(path, files[path].bootstrap)
	}
	for _, p := range scanned {
		add(p.File, nil)
	}
	return b
}

// problems returns the reasons why bootstraps could not be read.
func (b *bootstrapSet) problems() []findings.Problem {
	all := slices.Clone(b.scanned)
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		all = append(all, b.files[path].errs...)
	}
	return all
}

// secrets returns the names of the static secrets of all bootstraps.
func (b *bootstrapSet) secrets() []string {
	all := slices.Clone(b.all.secrets)
	for _, dir := range slices.Sorted(maps.Keys(b.groups)) {
		all = append(all, b.groups[dir].secrets...)
	}
	return all
}

// maxProgram returns the limit for the size of a regular expression in a file. An Envoy starts with one bootstrap,
// so that of its group replaces those of all clients.
func (b *bootstrapSet) maxProgram(path string) int {
	for dir := filepath.Dir(path); len(b.groups) > 0; dir = filepath.Dir(dir) {
		if of, ok := b.groups[dir]; ok {
			return of.maxProgram
		}
		if b.groupDirs[dir] || dir == filepath.Dir(dir) {
			break
		}
	}
	if b.all.known {
		return b.all.maxProgram
	}
	return validate.MaxProgram
}

// mayComplete reports whether the bootstraps of some nodes may all be known: see [reach.complete].
func (b *bootstrapSet) mayComplete() bool {
	return b.all.complete || !b.all.known && slices.ContainsFunc(slices.Collect(maps.Values(b.groups)), func(c bootstrapContent) bool { return c.complete })
}

// byCluster returns the groups whose bootstraps have a cluster, by its name, without the bootstraps of all clients.
func (b *bootstrapSet) byCluster(l *layout) map[string][]string {
	in := map[string][]string{}
	for _, dir := range slices.Sorted(maps.Keys(b.groups)) {
		for name := range b.groups[dir].clusters {
			in[name] = append(in[name], l.group(dir))
		}
	}
	return in
}

// readBootstraps reads the bootstraps that a scan has found, and reports whether they have changed.
func (s *Source) readBootstraps(sc *scanner, force bool) (changed bool) {
	was, files := s.bootstraps, map[string]*file{}
	for _, f := range sc.bootstraps {
		files[f.path] = s.readSafely(f, was.files[f.path], force)
	}
	groupDirs := map[string]bool{}
	for _, f := range sc.files {
		if isGroupFile(f.path) {
			groupDirs[filepath.Dir(f.path)] = true
		}
	}
	same := maps.Equal(files, was.files) && slices.Equal(sc.bootstrapErrs, was.scanned)
	if same && maps.Equal(groupDirs, was.groupDirs) {
		return false
	}
	s.bootstraps = newBootstrapSet(s.types, s.opts.Bootstraps, s.layout.roots, groupDirs, files, sc.bootstrapErrs)
	if same {
		return false // a file of a group has changed, too
	}
	if now := s.bootstraps.secrets(); !slices.Equal(now, was.secrets()) {
		s.examineValidator.SetSecrets(now)
		s.secretsRound++
	}
	before, problems := was.problems(), s.bootstraps.problems()
	for _, p := range problems {
		if !s.checking && !slices.Contains(before, p) {
			s.opts.Log.Warn("bootstrap not read: its clusters are unknown", "code", p.CodeOrOther(), "problem", p.Error())
		}
	}
	if s.checking && len(problems) > 0 { // its clusters and secrets are unknown
		s.ignore = append(slices.Clone(s.ignore), needsBootstraps...)
	}
	return true
}

// fillBootstrap decodes the content of a bootstrap.
func (s *Source) fillBootstrap(now *file, path string, data []byte) {
	m, problems := importer.Bootstrap(importer.File{Name: path, Data: data}, s.types)
	now.note(problems)
	if m != nil {
		now.bootstrap = m.Interface()
	}
}

// inBootstrap reports whether a node may have the resource of a reference in its bootstrap, and get the group of
// the reference.
func (r *reach) inBootstrap(group string, ref xds.Ref) bool {
	switch {
	case !ref.Type.Is(xds.Cluster):
		return false
	case r.bootstraps.all.clusters[ref.Name]:
		return true
	case r.kept == nil:
		r.kept = r.bootstraps.byCluster(r.layout)
	}
	in := r.kept[ref.Name]
	return r.together.FirstPossible(group, in) != "" || len(in) > 0 && r.layout.invalid(group)
}

// complete reports whether the bootstraps of all nodes that get a group are known.
func (r *reach) complete(group string) bool {
	b := r.bootstraps
	if b.all.known && !b.all.complete {
		return false
	}
	for dir, c := range b.groups {
		if !c.complete && r.together.Possible(group, r.layout.group(dir)) {
			return false
		}
	}
	return b.all.known || r.bootstrapOf(group).known
}

// bootstrapOf returns the content of the bootstrap in the directory of a group.
func (r *reach) bootstrapOf(group string) bootstrapContent {
	if d := r.layout.named[group]; d != nil {
		return r.bootstraps.groups[d.dir]
	}
	return bootstrapContent{}
}

// InBootstrap reports whether a known bootstrap of a client that gets these groups has the resource of a
// reference. Any goroutine may call it.
func (s *Source) InBootstrap(groups []string, ref xds.Ref) bool {
	now := s.served.Load()
	return now != nil && ref.Type.Is(xds.Cluster) && (now.bootstraps.all.clusters[ref.Name] ||
		slices.ContainsFunc(now.kept[ref.Name], func(in string) bool { return slices.Contains(groups, in) }))
}
