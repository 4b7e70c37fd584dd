package dir

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// A waiting is what the log was told of resources that wait to be removed. The zero value:
// nothing waits.
type waiting struct {
	told time.Time // when it last said so; zero: nothing waits
}

// holding logs that something waits to be removed: once when that begins, for files may go
// one by one, and then how many came to it, when it ends or has taken as long as it may.
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
	if s.waiting.told = now; held == 0 {
		s.waiting.told = time.Time{}
	}
}

// since logs of which types more than half has gone from the files since there was a last
// good configuration, at the start. Of few it is no reason to refuse them, and nobody
// else says that it happened: the log of before has ended.
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
