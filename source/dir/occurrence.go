package dir

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// The methods in this file explain why a client lacks a resource of a file. The admin API of the daemon uses them.

// A lastRead has the files as last read. It does not change once made.
type lastRead struct {
	files map[string]*file
	layout
	since time.Time // since when err is not nil
	err   error     // why the files are not served; nil: they are
}

// publishRead publishes the files as last read, and the result of their load.
func (s *Source) publishRead(now time.Time, err error) {
	is := &lastRead{files: s.files, layout: s.layout, err: err}
	switch was := s.lastRead.Load(); {
	case err == nil:
	case was != nil && was.err != nil:
		is.since = was.since
	default:
		is.since = now
	}
	s.lastRead.Store(is)
}

// An Occurrence is an occurrence of a resource: in the served configuration, or in the files as last
// read.
type Occurrence struct {
	Loaded
	Group            string // of nodes
	Served           bool   // false: it is in the files as last read, which are not served
	Outdated         bool   // it is served, but its file as last read lacks it or cannot be read
	MissingGroupFile string // it is served, but this file of its group is gone and the removal is not approved; "": the file exists
}

// Occurrences returns all occurrences of a resource, by its name or an alias. Served occurrences come
// first, and among these the one in the root's group. Then come occurrences in files that were read
// but not served, because their load was rejected.
func (s *Source) Occurrences(t *xds.Type, name string) (all []Occurrence) {
	if now := s.served.Load(); now != nil {
		for group, w := range now.contents {
			if l, ok := w.find(t, name); ok {
				all = append(all, Occurrence{Loaded: l, Group: group, Served: true})
			}
		}
		slices.SortFunc(all, func(a, b Occurrence) int { return byGroup(a.Group, b.Group) })
	}
	is := s.lastRead.Load()
	if is == nil || is.err == nil && s.Held() == 0 {
		return all
	}
	for i := range all {
		is.compare(&all[i])
	}
	if is.err == nil { // each resource of the files is served
		return all
	}
	for _, path := range slices.Sorted(maps.Keys(is.files)) {
		for _, l := range is.files[path].loaded {
			if !l.Type.Is(t) || l.Name != name && !slices.Contains(l.Aliases, name) {
				continue
			}
			if !slices.ContainsFunc(all, func(o Occurrence) bool { return o.Resource == l.Resource }) {
				all = append(all, Occurrence{Loaded: l, Group: is.group(path)})
			}
		}
	}
	return all
}

// compare sets the fields of a served occurrence that depend on the files of a rejected load.
func (is *lastRead) compare(s *Occurrence) {
	home := is.group(s.File)
	if kept, ok := errors.AsType[RejectedGroups](is.err); ok && !slices.ContainsFunc(kept, func(g RejectedGroup) bool { return g.Group == s.Group || g.Group == home }) {
		return // its group was loaded
	}
	if d := is.named[s.Group]; d != nil && len(d.raw) > 0 && is.files[d.File] == nil {
		s.MissingGroupFile = d.File
	}
	f := is.files[s.File]
	s.Outdated = f == nil || !slices.ContainsFunc(f.loaded, func(l Loaded) bool {
		return l.Resource == s.Resource || l.Pos == s.Pos && !l.Type.Is(s.Type) // the second case: a review has added it
	})
}

// find returns a resource by its name or an alias.
func (w groupContent) find(t *xds.Type, name string) (l Loaded, ok bool) {
	c := w.types[t.URL]
	if c == nil {
		return l, false
	}
	l, ok = c.at[name]
	if !ok {
		l, ok = c.aliases[name]
	}
	return l, ok
}

// Lookup returns the served resource of a group, by its name or an alias.
func (s *Source) Lookup(group string, t *xds.Type, name string) (Occurrence, bool) {
	now := s.served.Load()
	if now == nil {
		return Occurrence{}, false
	}
	l, ok := now.contents[group].find(t, name)
	return Occurrence{Loaded: l, Group: group, Served: true}, ok
}

// SocketClashes returns an error, at the place of the address, for each socket of a served listener on which
// another listener of the groups listens, with that listener. The groups are those of one node, in order.
func (s *Source) SocketClashes(in []string, l Loaded) (found []findings.Problem, others []Occurrence) {
	now := s.served.Load()
	if now == nil || !l.Type.Is(xds.Listener) || strings.HasPrefix(l.Name, serversTemplate) {
		return nil, nil
	}
	seen := map[string]bool{l.Name: true}
	for _, group := range in {
		c := now.contents[group].types[xds.Listener.URL]
		if c == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.at)) {
			if seen[name] || strings.HasPrefix(name, serversTemplate) {
				continue
			}
			seen[name] = true
			for _, at := range l.claims {
				if slices.ContainsFunc(c.at[name].claims, func(o claim) bool { return o.name == at.name }) {
					found = append(found, at.taken(l, c.at[name], ""))
					others = append(others, Occurrence{Loaded: c.at[name], Group: group, Served: true})
				}
			}
		}
	}
	return found, others
}

// Rule returns the rule of a group as text, and its place. Both are "" if no rule selects the group
// itself.
func (s *Source) Rule(group string) (text, place string) {
	now := s.served.Load()
	if now == nil || now.rules == nil {
		return "", ""
	}
	text, at := now.rules.Rule(group)
	return text, at.String()
}

// Nearest returns the name of the served resource that is most similar to a name; "" if none is similar.
func (s *Source) Nearest(t *xds.Type, name string) string {
	now := s.served.Load()
	if now == nil {
		return ""
	}
	budget := maxCompared
	return protoyaml.Nearest(name, func(yield func(string) bool) {
		for _, group := range slices.SortedFunc(maps.Keys(now.contents), byGroup) {
			c := now.contents[group].types[t.URL]
			if c == nil || len(c.at) > budget {
				continue
			}
			budget -= len(c.at)
			for _, name := range slices.Sorted(maps.Keys(c.at)) {
				if !yield(name) {
					return
				}
			}
		}
	})
}

// LoadError returns why the files as last read are not served, and since when. The error is [Errors],
// [RejectedGroups] or a refused removal; nil if the files are served.
func (s *Source) LoadError() (since time.Time, err error) {
	is := s.lastRead.Load()
	if is == nil {
		return time.Time{}, nil
	}
	return is.since, is.err
}

// ErrorsMentioning returns the mistakes in files that contain a name, or that cannot be read at all. Because
// of them, the resource of that name may be missing.
func (s *Source) ErrorsMentioning(name string) (all []findings.Problem) {
	is := s.lastRead.Load()
	if is == nil || name == "" {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(is.files)) {
		f := is.files[path]
		if len(f.errs) == 0 {
			continue
		}
		if text, err := s.text(path); err != nil || bytes.Contains(text, []byte(name)) {
			all = append(all, f.errs...)
		}
	}
	return all
}

// Examine returns the reasons why Envoy would refuse a resource, and the problems of its certificates,
// as [Check] does. If there are any, it reads the file of the resource again to find the places of the
// fields. If the file has changed since, the problems have the place of the resource.
func (s *Source) Examine(l Loaded) (found []findings.Problem) {
	rd := *s.reader
	rd.validator, rd.most, rd.ignore = s.examineValidator, 0, nil
	m, err := rd.message(l.Type.URL, l.Body)
	if err != nil {
		return []findings.Problem{l.Pos.problem("%s %q: %v", l.Type, l.Name, err)}
	}
	add := func(code findings.Code, path, hint, message string) {
		p := l.Pos.Problem(code, message)
		p.Path, p.Hint = strings.Trim(p.Path+"."+path, "."), hint
		found = append(found, p)
	}
	if p := rd.inspect(&Loaded{Resource: l.Resource}, m); p.Message != "" {
		add(p.Code, p.Path, p.Hint, p.Message)
	}
	if mayViolate(l) {
		for _, v := range s.examineValidator.Validate(m) {
			add(v.Code, v.Path, v.Hint, v.Message)
		}
	}
	if len(found) == 0 {
		return nil
	}
	if d, ok := s.reopen(&rd, l); ok {
		placed := slices.DeleteFunc(slices.Clone(d.Problems), func(p findings.Problem) bool { return p.Warning })
		if len(placed) > 0 {
			return placed
		}
	}
	return found
}

// FieldAt returns the place of a field, such as "clusters.yaml:12:20", by its path in the resource,
// such as "load_assignment.endpoints[0]". If that is not known, it returns the place of the resource.
func (s *Source) FieldAt(l Loaded, path string) string {
	rd := *s.reader
	rd.validator = nil
	d, ok := s.reopen(&rd, l)
	if !ok {
		return l.Pos.String()
	}
	typ, err := rd.types.FindMessageByURL(l.Type.URL)
	if err != nil {
		return l.Pos.String()
	}
	at, whole := d.place(d.node, l.Pos.Path, typ.Descriptor(), path)
	return Pos{l.File, at.Node.Line, at.Node.Column, whole}.String()
}

// Lines returns the lines of fields of a resource in its file, by path. A field that is not in the file has the line of
// the nearest field around it. The result is empty if the resource in the file has changed since the load.
func (s *Source) Lines(l Loaded, paths []string) map[string]int {
	rd := *s.reader
	rd.validator = nil
	lines := map[string]int{}
	typ, err := rd.types.FindMessageByURL(l.Type.URL)
	if err != nil {
		return lines
	}
	d, ok := s.reopen(&rd, l)
	if !ok {
		return lines
	}
	for _, path := range paths {
		at, _ := d.place(d.node, l.Pos.Path, typ.Descriptor(), path)
		lines[path] = at.Node.Line
	}
	return lines
}

// A reopened is a resource whose file was read again.
type reopened struct {
	*decoder
	node *yaml.Node // of the resource; nil: it was not found
}

// reopen reads the file of a resource again, and finds the resource if it did not change.
func (s *Source) reopen(rd *reader, l Loaded) (reopened, bool) {
	if l.Pos.Line == 0 {
		return reopened{}, false
	}
	data, err := s.text(l.File)
	if err != nil {
		return reopened{}, false
	}
	open := func(n *yaml.Node) (reopened, bool) {
		d := reopened{&decoder{Decoder: protoyaml.Decoder{File: l.File, Source: data, Types: rd.types, Words: words()}, reader: rd}, n}
		return d, d.decodeAgain(l)
	}
	if d, ok := open(section(l, data)); ok {
		return d, true
	}
	p := placer{source: s, files: map[string][]*yaml.Node{l.File: documents(l.File, data)}, data: map[string][]byte{l.File: data}}
	n := p.node(l)
	for doc := 0; n == nil && doc < len(p.files[l.File]); doc++ { // a restored resource does not know its document
		l.doc = doc
		n = p.node(l)
	}
	return open(n)
}

// decodeAgain decodes the resource again, and reports whether it is the same.
func (d *reopened) decodeAgain(l Loaded) bool {
	if d.node == nil {
		return false
	}
	flat := d.Flat(d.node, l.Pos.Path)
	if flat == nil {
		return false
	}
	d.entry(d.node, flat, l.Pos.Path, responseInfo{})
	return len(d.loaded) == 1 && d.loaded[0].Sum == l.Sum && d.loaded[0].Name == l.Name
}

// Types returns the message types that the files may contain.
func (s *Source) Types() *Types { return s.types }

// Files returns the paths of the files of the last load, sorted.
func (s *Source) Files() []string {
	is := s.lastRead.Load()
	if is == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(is.files))
}
