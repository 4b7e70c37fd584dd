package dir

import (
	"bytes"
	"strings"

	"github.com/chancery-xds/chancery/internal/protofile"
)

// A Checked is what [Check] found in a directory.
type Checked struct {
	Files  int
	Counts []Count // in push order; of what could be read

	// Errors keep the directory from being loaded. Warnings do not. Both are
	// sorted by place, and of more than Options.Most the first are told, and
	// last how many more there are: see [protofile.Count].
	Errors, Warnings []protofile.Problem
}

// Check reads a directory as a [Source] with the options does, and loads it
// nowhere. Beyond what a source tells, a directory without resources is a mistake, and
// it warns of references to resources that no file has.
func Check(root string, opts Options) Checked {
	s := New(root, nil, opts)
	var sc scanner
	next, _, errs := s.look(true, &sc)
	if len(errs) == 0 && len(next.types) == 0 {
		errs = append(errs, protofile.Problem{
			File: root, Message: "no file has a resource",
			Hint: "is it the right directory? Names of files end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb",
		})
	}
	if len(sc.errs) == 0 { // else files are missing of which nobody knows what they have
		s.missing = next.dangling(s.bad())
	}
	return Checked{Files: len(s.files), Counts: next.counts(), Errors: errs, Warnings: s.doubts()}
}

// bad returns a function that reports whether a name may be that of a resource in a file
// with mistakes, which is as good as there: it stands in the file, in some place.
func (s *Source) bad() func(name string) bool {
	var texts [][]byte
	for path, f := range s.files {
		if len(f.errs) == 0 {
			continue
		}
		text, _, err := read(path, s.MaxFile)
		if err != nil {
			return func(string) bool { return true }
		}
		texts = append(texts, text)
	}
	return func(name string) bool {
		if len(texts) > 0 && strings.HasPrefix(name, "xdstp:") { // which has many spellings
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
