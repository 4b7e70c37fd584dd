package dir

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// A waiting is the state of the log lines about delayed removals. The zero value: nothing is delayed.
type waiting struct {
	told time.Time // when the delay was last logged; zero: nothing is delayed
}

// holding logs delayed removals. It logs once when the delay begins, because files may disappear one
// by one. It logs how many removals joined when the delay ends, or at its longest duration.
func (s *Source) holding(now time.Time) {
	held, joined := s.Held(), 0
	for _, p := range s.parts {
		joined += p.removals.joined
	}
	switch {
	case s.waiting.told.IsZero() && held > 0:
		var names []string
		for _, p := range s.parts {
			for _, gone := range p.removals.absent {
				names = slices.AppendSeq(names, maps.Keys(gone))
			}
		}
		s.opts.Log.Warn("removals delayed: many resources are missing from the files",
			slog.Int("resources", held), slog.Any("first", first(names)), slog.String("in", s.opts.Confirm.String()))
	case !s.waiting.told.IsZero() && (held == 0 || now.Sub(s.waiting.told) >= patience*s.home.removals.confirm):
		if joined > 0 {
			s.opts.Log.Warn("removals delayed: more resources are missing from the files", slog.Int("resources", joined))
		}
	default:
		return
	}
	for _, p := range s.parts {
		p.removals.joined = 0
	}
	s.waiting.told = now
	if held == 0 {
		s.waiting.told = time.Time{}
	}
}

// since logs at the start the types that lost more than half of their resources, compared to the last
// good configuration. For a type with few resources this is not refused, so only this line reports it:
// the log of the previous process has ended.
func (s *Source) since(name string, lost map[string]loss) {
	var much []loss
	for _, l := range lost {
		if 2*len(l.names) > l.had {
			much = append(much, l)
		}
	}
	if much == nil {
		return
	}
	slices.SortFunc(much, func(a, b loss) int {
		return cmp.Or(cmp.Compare(a.of.typ.Rank(), b.of.typ.Rank()), cmp.Compare(a.of.typ.URL, b.of.typ.URL))
	})
	var gone []string
	for _, l := range much {
		gone = append(gone, fmt.Sprintf("%d of %d %s", len(l.names), l.had, l.of.typ))
	}
	log := s.opts.Log
	if s.rules != nil {
		log = log.With("group", name)
	}
	log.Warn("more than half of a type is missing from the files, compared to the last good configuration", slog.Any("gone", gone))
}
