package dir

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/xds"
)

// A Checked is what [Check] found in a directory.
type Checked struct {
	Files  int
	Counts []Count // in push order; of what could be read

	// Errors keep the directory from being loaded. Warnings do not. Both are
	// sorted by place, and of more than a hundred the first are told and the
	// others counted.
	Errors, Warnings []protofile.Problem
}

// Check reads a directory as a [Source] with the options does, and loads it
// nowhere. Beyond what a source tells it warns of a directory without resources,
// and of references to resources that no file has, if there are no errors: what
// cannot be read refers to nothing and is referred to in vain.
func Check(root string, opts Options) Checked {
	s := New(root, nil, opts)
	next, _, errs := s.look(true, &scanner{})
	c := Checked{Files: len(s.files), Counts: next.counts(), Errors: errs, Warnings: s.warnings}
	if len(errs) == 0 {
		var warnings []protofile.Problem
		for _, f := range s.files {
			warnings = append(warnings, f.warnings...)
			warnings = append(warnings, f.ending(time.Now())...)
		}
		warnings = append(warnings, next.dangling()...)
		if len(c.Counts) == 0 {
			warnings = append(warnings, protofile.Problem{
				File: root, Message: "no file has a resource", Warning: true,
				Hint: "is it the right directory? Names of files end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb",
			})
		}
		c.Warnings = summary(root, "warnings", warnings, 0)
	}
	return c
}

// dangling returns a warning for each reference to a resource that there is
// not.
func (w world) dangling() []protofile.Problem {
	have := map[string]map[string]bool{} // names and aliases, by type
	for url, c := range w.types {
		have[url] = make(map[string]bool, len(c.at))
		for name, l := range c.at {
			have[url][name] = true
			have[url][c.typ.Collection(name)] = true
			for _, alias := range l.Aliases {
				have[url][alias] = true
			}
		}
	}
	var found []protofile.Problem
	for _, url := range slices.Sorted(maps.Keys(w.types)) {
		c := w.types[url]
		for _, name := range slices.Sorted(maps.Keys(c.at)) {
			l := c.at[name]
			for _, ref := range l.Refs {
				if ref.Name == xds.Wildcard || have[ref.Type.URL][ref.Name] {
					continue
				}
				p := l.Pos.problem("%s %q refers to %s %q, which no file has", c.typ, name, ref.Type, ref.Name)
				p.Warning, p.Hint = true, hints[ref.Type.URL]
				found = append(found, p)
			}
		}
	}
	return found
}

// hints say what a missing resource means to a client.
var hints = map[string]string{
	xds.Cluster.URL:  "requests to it fail, unless the client's bootstrap has it",
	xds.Endpoint.URL: "Envoy waits 15 s for endpoints that are missing, at each start",
}
