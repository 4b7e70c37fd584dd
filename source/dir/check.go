package dir

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// A Checked is the result of [Check].
type Checked struct {
	Files  int
	Groups int     // directories with a [GroupFile], plus the root; 0: no directory has one
	Counts []Count // in push order; of the resources that could be read

	// A source does not load files with Errors; it loads files with Warnings. Both are sorted by
	// place. Options.MaxProblems limits their numbers; the last one then counts the rest: see
	// [findings.Count].
	Errors, Warnings []findings.Problem

	// BootstrapErrors are the reasons why bootstraps could not be read (Options.ReadBootstraps).
	BootstrapErrors []findings.Problem

	// Loaded are the resources that could be read, in the order of the files.
	Loaded []Loaded

	by   *Source
	plan *plan
}

// With returns c with more errors and warnings, each in its place. It reports at most most of each;
// see Options.MaxProblems.
func (c Checked) With(errs, warnings []findings.Problem, most int) Checked {
	c.by.opts.MaxProblems = most
	c.Errors = c.by.summary("error", c.by.counted(slices.Concat(c.Errors, errs)), 0)
	c.Warnings = c.by.summary("warning", c.by.counted(slices.Concat(c.Warnings, warnings)), 0)
	return c
}

// Stdin is the path of standard input.
const Stdin = "-"

// stdinName is the file name of standard input in problems.
const stdinName = "<stdin>"

// Check checks one directory or file as [CheckAll] does.
func Check(path string, opts Options) Checked { return CheckAll([]string{path}, nil, opts) }

// CheckAll reads files and directories as a [Source] with the options does, and does not load them
// into a store. For the path "-" it reads stdin, as YAML or JSON.
//
// It finds more than a source does. It reports what Envoy would refuse, and the absence of any
// resource, as errors. It warns of references to resources that no file has, and of resources without
// a reference to them. It leaves out findings of the kinds in ignore.
func CheckAll(paths []string, stdin io.Reader, opts Options, ignore ...findings.Code) Checked {
	opts.Validate = true
	s := New(paths[0], nil, opts)
	s.ignore = ignore
	s.lines = mayShowLines(s.types)
	sc := &scanner{}
	s.checking = true
	s.lookAt(paths, stdin, sc)
	p, errs := s.planCheck(sc)
	// If files could not be found, they may have the missing resources.
	var refused []findings.Problem
	if len(sc.errs) == 0 {
		refused, s.missing = s.missingResources(p)
	}
	if readable(errs) { // resources that cannot be read may have references, too
		s.missing = append(s.missing, newReach(&p.layout, p.next, s.bootstraps).unused()...)
	}
	s.missing = append(s.missing, newReach(&p.layout, p.next, s.bootstraps).largeResponses()...)
	if len(refused) > 0 {
		errs = s.summary("error", slices.Concat(errs, refused), 0)
	}
	if len(errs) == 0 && len(p.counts()) == 0 {
		errs = append(errs, findings.Problem{
			File: paths[0], Code: findings.NoResources, Message: "no file has a resource", Hint: EmptyHint(paths[0]),
		})
	}
	if len(paths) == 1 && paths[0] == Stdin && len(errs) == 1 && errs[0].Code == findings.NoResources {
		errs[0] = findings.Problem{File: stdinName, Code: findings.NoResources, Message: "the file has no resource"}
	}
	c := Checked{Files: len(s.files), Counts: p.counts(), Groups: len(p.layout.named), Errors: errs, Warnings: s.allWarnings(), BootstrapErrors: s.bootstraps.problems(), by: s, plan: p}
	for i := range c.BootstrapErrors {
		if c.Groups > 0 {
			c.BootstrapErrors[i].Group = p.layout.group(c.BootstrapErrors[i].File)
		}
	}
	for _, f := range sc.files {
		c.Loaded = append(c.Loaded, s.files[f.path].loaded...)
	}
	return c
}

// EmptyHint returns the most likely reason why no file of a directory has a resource.
func EmptyHint(root string) string {
	if _, err := os.Lstat(filepath.Join(root, "..data")); err == nil { // the kubelet makes this link in its volumes
		return `"kubectl create configmap --from-file" leaves out subdirectories: use "chancery export --configmap"`
	}
	return "is it the right directory? Names of files end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb"
}

// mayShowLines returns a function that reports whether an error may quote lines of an unreadable file. A
// server quotes none, because more people read its log than its files.
func mayShowLines(types *envoyapi.Types) func(src []byte) bool {
	names := sync.OnceValue(func() (names []protoreflect.Name) {
		for md := range types.Added() {
			names = append(names, secrets.MarkedNames(md)...)
		}
		return names
	})
	return func(src []byte) bool { return secrets.ShowsLines(src, names()) }
}

// readable reports whether all resources could be read, even if Envoy would refuse them.
func readable(errs []findings.Problem) bool {
	return !slices.ContainsFunc(errs, func(p findings.Problem) bool { return !p.Code.IsEnvoyRule() })
}

// missingResources returns an error or a warning for each reference to a resource that no file has, at its
// place. It counts warnings beyond Options.MaxProblems.
func (s *Source) missingResources(of *plan) (refused, warnings []findings.Problem) {
	p := newPlacer(s)
	bad := s.mentionedInBadFile()
	r := newReach(&of.layout, of.next, s.bootstraps)
	found := r.dangling(func(ref xds.Ref) bool { return bad(ref.Name) })
	s.suggest(r, found)
	errs, missing := s.splitRequired(r, found)
	placed := func(code findings.Code, all []dangling) []findings.Problem {
		if slices.Contains(s.ignore, code) {
			return nil
		}
		shown := all[:s.shown(len(all))]
		for i, d := range shown {
			shown[i] = p.reference(d)
		}
		return problems(all)
	}
	warnings = placed(findings.Dangling, missing)
	shown := s.shown(len(warnings))
	s.omittedWarnings += len(warnings) - shown
	return placed(findings.UnknownCluster, errs), warnings[:shown]
}

// planCheck makes a plan of the files that were read, and returns it with all errors. A check does not
// reject single groups.
func (s *Source) planCheck(sc *scanner) (*plan, Errors) {
	p, err := s.plan(sc, true, time.Now())
	s.addGroups(p)
	errs, _ := errors.AsType[Errors](err)
	return p, errs
}

func (p *plan) counts() []Count { return counts(slices.Collect(maps.Values(p.next))...) }

// lookAt reads files, directories and stdin.
func (s *Source) lookAt(paths []string, stdin io.Reader, sc *scanner) {
	if info, err := os.Stat(paths[0]); len(paths) == 1 && paths[0] != Stdin && (err != nil || info.IsDir()) {
		s.look(true, sc)
		return
	}
	s.layout = newLayout()
	s.prepare(sc)
	var piped *file
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		info, err := os.Stat(path)
		switch {
		case path == Stdin:
			piped = s.pipe(stdin)
		case err == nil && !info.IsDir():
			sc.one(path, info)
			s.layout.filesByName = true
		default:
			s.layout.roots = append(s.layout.roots, filepath.Clean(path))
			sc.scan(path)
		}
	}
	sc.files = distinct(sc.files)
	sc.bootstraps = distinct(sc.bootstraps)
	s.readBootstraps(sc, true)
	files := s.read(sc.files, nil, true)
	if piped != nil {
		s.layout.filesByName = true
		sc.files = append(sc.files, found{path: stdinName})
		files[stdinName] = piped
	}
	s.gather(sc, files)
}

// distinct leaves out files that were found twice, for example by name and in a directory.
func distinct(files []found) (once []found) {
	seen := map[string]bool{}
	for _, f := range files {
		if path := filepath.Clean(f.path); !seen[path] {
			seen[path] = true
			once = append(once, f)
		}
	}
	return once
}

// one adds a file that was given by its name.
func (s *scanner) one(path string, info fs.FileInfo) {
	switch {
	case !info.Mode().IsRegular():
		s.fail(path, disk.NotRegular(info.Mode()))
	case form(path) == nil:
		s.fail(path, errors.New("unknown file type: the name must end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb"))
	default:
		s.files = append(s.files, found{path: path, Stamp: watch.StampOf(info)})
	}
}

// pipe reads stdin.
func (s *Source) pipe(stdin io.Reader) *file {
	data, err := io.ReadAll(io.LimitReader(stdin, s.opts.MaxFile+1))
	if err == nil && int64(len(data)) > s.opts.MaxFile {
		err = fmt.Errorf("%w of %d bytes", watch.ErrTooLarge, s.opts.MaxFile)
	}
	f := &file{maxProgram: s.bootstraps.maxProgram(stdinName)}
	if err != nil {
		f.errs = []findings.Problem{s.unread(stdinName, err)}
		return f
	}
	s.stdin = data
	s.fill(f, stdinName, data)
	return f
}

// Valid returns the resources without mistakes. Only these are worth a test with a real Envoy, because
// the others are known to be refused.
func (c Checked) Valid() (sound []Loaded) {
	wrong := map[Pos]bool{}
	for _, p := range c.Errors {
		if l := c.around(p); l != nil {
			wrong[l.Pos] = true
		}
	}
	for _, l := range c.Loaded {
		if !wrong[l.Pos] && !l.refused {
			sound = append(sound, l)
		}
	}
	return sound
}

// BrokenClusters returns the clusters that resources refer to and that have errors: clusters which Valid
// leaves out, and names in files that cannot be read.
func (c Checked) BrokenClusters() []string {
	good, loaded, mentioned := map[string]bool{}, map[string]bool{}, c.by.mentionedInBadFile()
	for _, l := range c.Valid() {
		good[l.Name] = good[l.Name] || l.Type.Is(xds.Cluster)
	}
	for _, l := range c.Loaded {
		loaded[l.Name] = loaded[l.Name] || l.Type.Is(xds.Cluster)
	}
	broken := map[string]bool{}
	for _, l := range c.Loaded {
		for _, ref := range l.Refs {
			if ref.Type.Is(xds.Cluster) && ref.Name != xds.Wildcard && !good[ref.Name] && (loaded[ref.Name] || mentioned(ref.Name)) {
				broken[ref.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(broken))
}

// A View has the resources and bootstraps that one node has together.
type View struct {
	Loaded     []Loaded
	Bootstraps []Bootstrap // that were read from files; of a group before those of all clients
}

// Views returns the resources of [Checked.Valid] as nodes get them: for each group that is not empty,
// those of the group and of the groups that it includes. Without groups it returns all resources as
// one view.
func (c Checked) Views() (views []View) {
	sound := c.Valid()
	if c.Groups == 0 {
		return []View{{sound, c.bootstraps()}}
	}
	good := map[Pos]bool{}
	for _, l := range sound {
		good[l.Pos] = true
	}
	together := c.plan.layout.together()
	for _, group := range slices.SortedFunc(maps.Keys(c.plan.next), byGroup) {
		if len(c.plan.next[group].types) == 0 {
			continue
		}
		var view []Loaded
		seen := map[xds.Ref]bool{}
		for _, in := range together.Includes(group) {
			all := c.plan.next[in].all()
			slices.SortFunc(all, func(a, b Loaded) int {
				return cmp.Or(cmp.Compare(a.Type.URL, b.Type.URL), cmp.Compare(a.Name, b.Name))
			})
			for _, l := range all {
				if at := (xds.Ref{Type: l.Type, Name: l.Name}); good[l.Pos] && !seen[at] {
					seen[at], view = true, append(view, l)
				}
			}
		}
		views = append(views, View{view, c.bootstraps(together.Includes(group)...)})
	}
	return views
}

// bootstraps returns the bootstraps of groups, and those of all clients.
func (c Checked) bootstraps(groups ...string) (all []Bootstrap) {
	l, files := &c.plan.layout, c.by.bootstraps.files
	add := func(dir string) {
		path := filepath.Join(dir, BootstrapFile)
		if f := files[path]; f != nil && f.bootstrap != nil && !slices.ContainsFunc(all, func(b Bootstrap) bool { return b.File == path }) {
			all = append(all, Bootstrap{path, f.bootstrap})
		}
	}
	for _, name := range groups {
		if d := l.named[name]; d != nil {
			add(d.dir)
		}
	}
	for _, root := range l.roots {
		add(root)
	}
	return all
}

// around returns the resource that contains the place of a problem; nil if it is not known.
func (c Checked) around(p findings.Problem) (in *Loaded) {
	for i, l := range c.Loaded {
		switch {
		case l.File != p.File:
		case p.Pos.Line == 0:
			if l.Pos.Line == 0 && strings.HasPrefix(p.Path+".", l.Path+".") {
				in = &c.Loaded[i]
			}
		case l.Line < p.Pos.Line || l.Line == p.Pos.Line && l.Col <= p.Pos.Column:
			if in == nil || in.Line < l.Line || in.Line == l.Line && in.Col <= l.Col {
				in = &c.Loaded[i]
			}
		}
	}
	return in
}

// text returns the content of a file or of stdin.
func (s *Source) text(path string) ([]byte, error) {
	if path == stdinName {
		return s.stdin, nil
	}
	data, _, err := watch.Read(path, s.opts.MaxFile)
	return data, err
}

// mentionedInBadFile returns a function that reports whether a file with mistakes contains a name. That file may have
// the resource of the name, so a reference to it is not reported.
func (s *Source) mentionedInBadFile() func(name string) bool {
	var texts [][]byte
	for path, f := range s.files {
		if readable(f.errs) && f.omittedErrors == 0 {
			continue
		}
		text, err := s.text(path)
		if err != nil {
			return func(string) bool { return true }
		}
		texts = append(texts, text)
	}
	return func(name string) bool {
		if len(texts) > 0 && strings.HasPrefix(name, "xdstp:") { // such a name can be written in many ways
			return true
		}
		for _, text := range texts {
			if bytes.Contains(text, []byte(name)) {
				return true
			}
		}
		return false
	}
}
