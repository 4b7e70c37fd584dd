package wiring

import (
	"context"
	"errors"
	"fmt"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// maxWarnings is the maximum number of warnings in status.
const maxWarnings = 100

// FilesConfig returns, for status, the served configuration of a directory, without a rejected load.
func FilesConfig(st *store.Store, src *dir.Source) api.Config {
	sum := src.Summary()
	c := api.Config{Files: sum.Files, Groups: sum.Groups, Removals: RemovalsOf(src)}
	for _, n := range sum.Counts {
		c.Resources += n.N
	}
	c.Dangling, c.Doubts = sum.Dangling, findings.Count(sum.Warnings)
	for _, p := range sum.Warnings[:min(len(sum.Warnings), maxWarnings)] {
		p.Warning = false // the field of the answer says that it is a warning
		c.Warnings = append(c.Warnings, api.Warning{Code: string(p.CodeOrOther()), Text: p.Error(), Type: p.Type, Name: p.Name, Group: p.Group})
	}
	if newest, ok := st.Newest(); ok {
		c.Revision, c.At = newest.Seq, &newest.Time
	}
	return c
}

// RemovalsOf returns the removals that a directory delays; nil: none.
func RemovalsOf(src *dir.Source) *api.Removals {
	n, until := src.HeldUntil()
	if n == 0 {
		return nil
	}
	return &api.Removals{Resources: n, Until: until}
}

// Reload loads a directory again on behalf of an operator. If approve is true, the load may remove any number of
// resources.
func Reload(ctx context.Context, src *dir.Source, approve bool) reloadsocket.Reload {
	report, err := src.ReloadAndWait(ctx, approve)
	out := reloadsocket.Reload{Files: report.Files, Held: report.Held, Groups: report.Groups, KeptGroups: len(report.Rejected), Kept: report.Rejected.Problems()}
	for _, c := range report.Counts {
		out.Resources += c.N
	}
	for _, c := range report.Commit.Changes {
		out.Set += c.Set
		out.Removed += c.Removed
	}
	if err != nil {
		out.Errors = ProblemsOf(err)
	}
	return out
}

// ReloadAnswer converts the result of a reload for the admin API.
func ReloadAnswer(r reloadsocket.Reload) api.Reload {
	return api.Reload{Files: r.Files, Resources: r.Resources, Set: r.Set, Removed: r.Removed, Held: r.Held, Errors: r.Errors, Groups: r.Groups, KeptGroups: r.KeptGroups, Kept: r.Kept}
}

// ProblemsOf returns the errors of a load one by one.
func ProblemsOf(err error) (all []string) {
	errs, ok := errors.AsType[dir.Errors](err)
	if !ok {
		return []string{err.Error()}
	}
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// Clipped returns the first text, shortened, and the number of the other texts.
func Clipped(all []string) string {
	if len(all) == 0 {
		return ""
	}
	head := text.Head(all[0], 500)
	if len(all) > 1 {
		head += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	return head
}
