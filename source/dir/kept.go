package dir

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/findings"
)

// Kept are the groups that a load rejected, sorted by name. Their files have errors, and they have
// "on_error: alone": they keep their previous configuration, and the other groups were loaded. As an
// error, it is passed to [Options.Done], and [Source.Tell] logs it.
type Kept []KeptGroup

// A KeptGroup is a group that a load rejected.
type KeptGroup struct {
	Group string
	Never bool  // the group was never loaded: no node gets it. At the first start its nodes get no configuration
	Err   error // the reason; mistakes in files are [Errors]
}

// Error returns the errors, one on each line.
func (k Kept) Error() string { return strings.Join(k.Problems(), "\n") }

// Problems returns a line for each error of each group.
func (k Kept) Problems() (lines []string) {
	for _, g := range k {
		errs, ok := errors.AsType[Errors](g.Err)
		if !ok {
			lines = append(lines, fmt.Sprintf("group %q: %v", g.Group, g.Err))
		}
		for _, e := range errs {
			lines = append(lines, e.Error())
		}
	}
	return lines
}

// A keep collects the errors of one rejected group while a load is planned.
type keep struct {
	problems []findings.Problem
	more     int   // errors beyond Options.Most that were not kept
	err      error // a refused removal
}

// groupsKept returns the rejected groups with their errors, limited and sorted as those of a load.
func (s *Source) groupsKept(all map[string]*keep) (k Kept) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		g := KeptGroup{Group: name, Never: s.parts[name] == nil, Err: all[name].err}
		if errs := all[name].problems; len(errs) > 0 {
			g.Err = Errors(s.summary("error", s.counted(errs), all[name].more))
		}
		k = append(k, g)
	}
	return k
}

// A keeping has the log lines about rejected groups, by group name.
type keeping map[string]keptSince

type keptSince struct {
	since, told time.Time
	text        string
}

// tellKept logs why groups are rejected: when that begins, when the reason or the files change, and
// every five minutes.
func (s *Source) tellKept(now time.Time, always bool) {
	next := keeping{}
	for _, g := range s.kept {
		was := s.keeping[g.Group]
		if was.since.IsZero() {
			was.since = now
		}
		if text := g.Err.Error(); always || text != was.text || s.failing.moved || now.Sub(was.told) >= remind {
			was.text, was.told = text, now
			s.tellGroup(g, was.since)
		}
		next[g.Group] = was
	}
	s.keeping = next
}

func (s *Source) tellGroup(g KeptGroup, since time.Time) {
	errs, ok := errors.AsType[Errors](g.Err)
	attrs := []any{"group", g.Group, "since", since.UTC().Format(time.RFC3339)}
	if ok {
		attrs = append(attrs, "errors", errs.Count())
	} else {
		attrs = append(attrs, "error", g.Err)
	}
	if g.Never {
		s.opts.Log.Error("group rejected: no node gets it", attrs...)
	} else {
		s.opts.Log.Error("group rejected, keeping its previous configuration", attrs...)
	}
	for _, e := range errs {
		s.opts.Log.Error("configuration error", "group", g.Group, "code", e.CodeOrOther(), "error", e.Error())
	}
}
