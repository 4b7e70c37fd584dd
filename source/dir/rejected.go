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

// RejectedGroups are the groups that a load rejected, sorted by name. Their files have errors, and they have
// "on_error: alone": they keep their previous configuration, and the other groups were loaded. As an
// error, it is passed to [Options.Done], and [Source.LogError] logs it.
type RejectedGroups []RejectedGroup

// A RejectedGroup is a group that a load rejected.
type RejectedGroup struct {
	Group       string
	NeverLoaded bool  // the group was never loaded: no node gets it. At the first start its nodes get no configuration
	Err         error // the reason; mistakes in files are [Errors]
}

// Error returns the errors, one on each line.
func (k RejectedGroups) Error() string { return strings.Join(k.Problems(), "\n") }

// Problems returns a line for each error of each group.
func (k RejectedGroups) Problems() (lines []string) {
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

// A rejection collects the errors of one rejected group while a load is planned.
type rejection struct {
	problems []findings.Problem
	more     int   // errors beyond Options.MaxProblems that were not kept
	err      error // a refused removal
}

// rejectedGroups returns the rejected groups with their errors, limited and sorted as those of a load.
func (s *Source) rejectedGroups(all map[string]*rejection) (k RejectedGroups) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		g := RejectedGroup{Group: name, NeverLoaded: s.parts[name] == nil, Err: all[name].err}
		if errs := all[name].problems; len(errs) > 0 {
			g.Err = Errors(s.summary("error", s.counted(errs), all[name].more))
		}
		k = append(k, g)
	}
	return k
}

// A rejectionLog has the log lines about rejected groups, by group name.
type rejectionLog map[string]loggedRejection

type loggedRejection struct {
	since, logged time.Time
	text          string
}

// logRejected logs why groups are rejected: when that begins, when the reason or the files change, and
// every five minutes.
func (s *Source) logRejected(now time.Time, always bool) {
	next := rejectionLog{}
	for _, g := range s.rejected {
		was := s.rejectionLog[g.Group]
		if was.since.IsZero() {
			was.since = now
		}
		if text := g.Err.Error(); always || text != was.text || s.failing.moved || now.Sub(was.logged) >= remind {
			was.text, was.logged = text, now
			s.logRejectedGroup(g, was.since)
		}
		next[g.Group] = was
	}
	s.rejectionLog = next
}

func (s *Source) logRejectedGroup(g RejectedGroup, since time.Time) {
	errs, ok := errors.AsType[Errors](g.Err)
	attrs := []any{"group", g.Group, "since", since.UTC().Format(time.RFC3339)}
	if ok {
		attrs = append(attrs, "errors", errs.Count())
	} else {
		attrs = append(attrs, "error", g.Err)
	}
	if g.NeverLoaded {
		s.opts.Log.Error("group rejected: no node gets it", attrs...)
	} else {
		s.opts.Log.Error("group rejected, keeping its previous configuration", attrs...)
	}
	for _, e := range errs {
		s.opts.Log.Error("configuration error", "group", g.Group, "code", e.CodeOrOther(), "error", e.Error())
	}
}
