package dir

import "github.com/chancery-xds/chancery/internal/protofile"

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
// nowhere. Beyond what a source tells, a directory without resources is a mistake, and
// it warns of references to resources that no file has, if there are no errors: what
// cannot be read refers to nothing and is referred to in vain.
func Check(root string, opts Options) Checked {
	s := New(root, nil, opts)
	next, _, errs := s.look(true, &scanner{})
	if len(errs) == 0 {
		s.missing = next.dangling()
		if len(next.types) == 0 {
			errs = append(errs, protofile.Problem{
				File: root, Message: "no file has a resource",
				Hint: "is it the right directory? Names of files end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb",
			})
		}
	}
	return Checked{Files: len(s.files), Counts: next.counts(), Errors: errs, Warnings: s.doubts()}
}
