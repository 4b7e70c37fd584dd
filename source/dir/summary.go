package dir

import "github.com/chancery-xds/chancery/findings"

// A Summary describes the configuration that a source serves.
type Summary struct {
	Files   int
	Groups  int            // directories with a [GroupFile], plus the root; 0: no directory has one
	Counts  []Count        // in push order; of all groups together
	ByGroup map[string]int // number of resources of each group, by its name

	Warnings []findings.Problem // as in the [Report] of the last successful load
	Dangling int                // references to missing resources; 0 without [Options.References]
}

// servedWarnings has the warnings of the served configuration.
type servedWarnings struct {
	warnings []findings.Problem
	dangling int
}

// countDangling returns the number of references to missing resources.
func (s *Source) countDangling() (n int) {
	for _, p := range s.counted(s.missing) {
		if p.Code == findings.Dangling {
			n++
		}
	}
	return n
}

// Summary describes the configuration that the source serves.
func (s *Source) Summary() Summary {
	now := s.served.Load()
	if now == nil {
		return Summary{}
	}
	sum := Summary{Files: now.files, ByGroup: make(map[string]int, len(now.contents))}
	if d := s.servedWarnings.Load(); d != nil {
		sum.Warnings, sum.Dangling = d.warnings, d.dangling
	}
	if now.rules != nil {
		sum.Groups = len(now.contents)
	}
	worlds := make([]groupContent, 0, len(now.contents))
	for name, w := range now.contents {
		worlds = append(worlds, w)
		for _, c := range w.types {
			sum.ByGroup[name] += len(c.at)
		}
	}
	sum.Counts = counts(worlds...)
	return sum
}
