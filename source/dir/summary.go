package dir

import "github.com/chancery-xds/chancery/findings"

// A Summary says what a source has served since its last load that was taken.
type Summary struct {
	Files  int
	Groups int            // directories with a [GroupFile], and the root; 0: there is none
	Counts []Count        // in push order; of all groups
	By     map[string]int // resources of each group, by its name

	Warnings []findings.Problem // as in the [Report] of that load
	Dangling int                // references to what is not there; 0 without [Options.References]
}

// doubted is what is doubtful in what is served.
type doubted struct {
	warnings []findings.Problem
	dangling int
}

// Summary returns what is served. It may be called by anyone at any time.
func (s *Source) Summary() Summary {
	now := s.served.Load()
	if now == nil {
		return Summary{}
	}
	sum := Summary{Files: now.files, By: make(map[string]int, len(now.worlds))}
	if d := s.doubted.Load(); d != nil {
		sum.Warnings, sum.Dangling = d.warnings, d.dangling
	}
	if now.rules != nil {
		sum.Groups = len(now.worlds)
	}
	worlds := make([]world, 0, len(now.worlds))
	for name, w := range now.worlds {
		worlds = append(worlds, w)
		for _, c := range w.types {
			sum.By[name] += len(c.at)
		}
	}
	sum.Counts = counts(worlds...)
	return sum
}
