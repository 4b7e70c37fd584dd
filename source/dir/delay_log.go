package dir

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// A delayLog is the state of the log lines about delayed removals. The zero value: nothing is delayed.
type delayLog struct {
	logged time.Time // when the delay was last logged; zero: nothing is delayed
}

// logDelayed logs delayed removals. It logs once when the delay begins, because files may disappear one
// by one. It logs how many removals joined when the delay ends, or at its longest duration.
func (s *Source) logDelayed(now time.Time) {
	held, joined := s.Held(), 0
	for _, p := range s.parts {
		joined += p.removals.newlyHeld
	}
	switch {
	case s.delayLog.logged.IsZero() && held > 0:
		var names []string
		for _, p := range s.parts {
			for _, gone := range p.removals.absent {
				names = slices.AppendSeq(names, maps.Keys(gone))
			}
		}
		s.opts.Log.Warn("removals delayed: many resources are missing from the files",
			slog.Int("resources", held), slog.Any("first", first(names)), slog.String("in", s.opts.Confirm.String()))
	case !s.delayLog.logged.IsZero() && (held == 0 || now.Sub(s.delayLog.logged) >= maxDelays*s.home.removals.confirm):
		if joined > 0 {
			s.opts.Log.Warn("removals delayed: more resources are missing from the files", slog.Int("resources", joined))
		}
	default:
		return
	}
	for _, p := range s.parts {
		p.removals.newlyHeld = 0
	}
	s.delayLog.logged = now
	if held == 0 {
		s.delayLog.logged = time.Time{}
	}
}

// logLosses logs at the start the types that lost more than half of their resources, compared to the last
// good configuration. For a type with few resources this is not refused, so only this line reports it:
// the log of the previous process has ended.
func (s *Source) logLosses(name string, lost map[string]loss) {
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
		return cmp.Or(cmp.Compare(a.before.typ.Rank(), b.before.typ.Rank()), cmp.Compare(a.before.typ.URL, b.before.typ.URL))
	})
	var gone []string
	for _, l := range much {
		gone = append(gone, fmt.Sprintf("%d of %d %s", len(l.names), l.had, l.before.typ))
	}
	log := s.opts.Log
	if s.rules != nil {
		log = log.With("group", name)
	}
	log.Warn("more than half of a type is missing from the files, compared to the last good configuration", slog.Any("gone", gone))
}
