package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// Check returns the findings about resources in a text, as "chancery check" does, and the changes if the served
// group had these resources. References may be to served resources. It keeps and logs nothing. The second result
// are the changes as a request for their impact.
func (e *Explainer) Check(group string, text []byte) (api.Check, []api.ImpactChange) {
	c := dir.CheckAll([]string{dir.Stdin}, bytes.NewReader(text), dir.Options{Log: slog.New(slog.DiscardHandler), Types: e.d.Source.Types()},
		findings.Dangling, findings.UnknownCluster, findings.Unused)
	warnings := slices.Concat(c.Warnings, e.missing(group, c.Loaded))
	for _, l := range c.Loaded {
		clashes, _ := e.d.Source.SocketClashes([]string{group}, l)
		warnings = append(warnings, clashes...)
	}
	out := api.Check{APIVersion: api.Version, Kind: api.KindCheck, Errors: findings.Count(c.Errors), Warnings: findings.Count(warnings), Findings: []api.Finding{}, Changes: []api.ChangedItem{}}
	add := func(problems []findings.Problem, warning bool) {
		for _, p := range problems {
			code := string(p.CodeOrOther())
			out.Findings = append(out.Findings, api.Finding{Warning: warning, Code: code, Line: p.Pos.Line, Column: p.Pos.Column, Path: p.Path, Message: p.Message, Hint: p.Hint})
		}
	}
	add(c.Errors, false)
	slices.SortStableFunc(warnings, func(a, b findings.Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	add(warnings[:min(len(warnings), maxWarnings)], true)
	var plan []api.ImpactChange
	served := secrets.NewFinder(e.d.Source.Types())
	for _, l := range c.Loaded {
		change := api.ChangedItem{Change: "added", Group: group, Type: l.Type.String(), Name: l.Name, Place: fmt.Sprintf("%d:%d", l.Line, l.Col), Bytes: len(l.Body)}
		if was := e.d.Snapshot().Effective(group).Table(l.Type).Lookup(l.Name); was != nil {
			change.Change = "changed"
			// A comparison with secrets would confirm a guess of them (SAFE-6).
			_, public := served.Shown(l.Type.URL, was.Body)
			switch {
			case public && bytes.Equal(was.Body, l.Body):
				out.Unchanged++
				continue
			case public:
				change.Before = len(was.Body)
			}
		}
		out.Total++
		if len(out.Changes) < maxChanges {
			out.Changes = append(out.Changes, change)
		}
		plan = append(plan, api.ImpactChange{Type: l.Type.URL, Name: l.Name, Group: group, Bytes: len(l.Body)})
	}
	return out, plan
}

// The largest numbers of warnings and of changes in the answer to a check.
const (
	maxWarnings = 100
	maxChanges  = 1000
)

// missing returns a warning for each reference to a resource that neither the text nor a group has.
func (e *Explainer) missing(group string, all []dir.Loaded) (found []findings.Problem) {
	have := map[xds.Ref]bool{}
	for _, l := range all {
		for _, name := range append([]string{l.Name}, l.Aliases...) {
			have[xds.Ref{Type: l.Type, Name: name}] = true
		}
	}
	g := e.grapher()
	for _, l := range all {
		for _, ref := range l.Refs {
			if have[ref] || ref.Name == xds.Wildcard || g.resolve(group, ref)[0].Resource != nil {
				continue
			}
			if missing, _, hint := g.state(group, ref); missing {
				found = append(found, findings.Problem{Pos: findings.Pos{Line: l.Line, Column: l.Col}, Code: findings.Dangling, Message: fmt.Sprintf("%s refers to %s, which does not exist", title(l.Type, l.Name), title(ref.Type, ref.Name)), Hint: hint, Warning: true})
			}
		}
	}
	return found
}
