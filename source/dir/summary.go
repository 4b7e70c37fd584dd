package dir

// A Summary says what a source has served since its last load that was taken.
type Summary struct {
	Files  int
	Groups int            // directories with a [GroupFile], and the root; 0: there is none
	Counts []Count        // in push order; of all groups
	By     map[string]int // resources of each group, by its name
}

// Summary returns what is served. It may be called by anyone at any time.
func (s *Source) Summary() Summary {
	now := s.served.Load()
	if now == nil {
		return Summary{}
	}
	sum := Summary{Files: now.files, By: make(map[string]int, len(now.worlds))}
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
