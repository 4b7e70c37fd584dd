package dir

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/check/validate"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

// maxRefusableLines limits how many findings one load logs. One more line counts the others.
const maxRefusableLines = 20

// A refusableLog warns of served resources that Envoy refuses (SAFE-3). It examines a configuration after
// its commit and in a goroutine of its own, so that it delays neither that load nor the next one.
type refusableLog struct {
	source  *Source
	inputs  chan committed // the newest configuration that is not examined yet; has one slot
	offered *served        // in the last input

	// The results of the last examination. Only changed resources are examined again.
	contents map[string]groupContent
	clashes  map[string]bool // listeners on the same socket, without their places
	missing  map[string]bool // missing clusters without which Envoy refuses a resource, without their places
}

// A committed is a configuration that was committed. It does not change.
type committed struct {
	contents   map[string]groupContent
	layout     layout
	bootstraps *bootstrapSet
}

func newRefusableLog(s *Source) *refusableLog {
	return &refusableLog{source: s, inputs: make(chan committed, 1)}
}

// offer passes the served configuration to run, if it is a new one. It replaces a configuration that run
// has not begun to examine. Only the goroutine of [Source.Run] calls it.
func (r *refusableLog) offer() {
	now := r.source.served.Load()
	if now == nil || now == r.offered {
		return
	}
	r.offered = now
	select {
	case <-r.inputs:
	default:
	}
	r.inputs <- committed{now.contents, r.source.layout, now.bootstraps}
}

// run examines configurations until ctx is done.
func (r *refusableLog) run(ctx context.Context) {
	for {
		select {
		case in := <-r.inputs:
			if p := panics.Do(func() { r.examine(ctx, in) }); p != nil {
				p.Log(r.source.opts.Log, "examine")
			}
		case <-ctx.Done():
			return
		}
	}
}

// examine logs the findings in resources that have changed since the last examination.
func (r *refusableLog) examine(ctx context.Context, in committed) {
	lines, more := r.find(ctx, in)
	if ctx.Err() != nil {
		return
	}
	for _, p := range lines {
		r.source.opts.Log.Warn("refusal expected: clients of Envoy will refuse a served resource", "code", p.Code, "problem", p.Error())
	}
	if more > 0 {
		r.source.opts.Log.Warn("refusal expected: more findings", "more", more, "hint", "chancery check "+shellWord(r.source.root)+" lists them")
	}
}

// find returns the first findings in resources that have changed since the last examination, sorted by place,
// and the number of the others.
func (r *refusableLog) find(ctx context.Context, in committed) (lines []findings.Problem, more int) {
	var bad []Loaded
	total := 0
	for l := range r.changed(in.contents) {
		if ctx.Err() != nil {
			return nil, 0
		}
		if n := len(r.source.violations(l)); n > 0 {
			bad, total = append(bad, l), total+n
		}
	}
	slices.SortFunc(bad, func(a, b Loaded) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Path, b.Path))
	})
	for _, l := range bad {
		if len(lines) >= maxRefusableLines || ctx.Err() != nil {
			break
		}
		for _, p := range r.source.Examine(l) {
			if p.Code.IsEnvoyRule() {
				lines = append(lines, p)
			}
		}
	}
	related := append(r.newClashes(in), r.newMissing(in)...)
	lines, total = append(lines, related...), total+len(related)
	lines = lines[:min(len(lines), maxRefusableLines)]
	r.contents = in.contents
	return lines, total - len(lines)
}

// Refusable returns findings of the configuration for which Envoy refuses resources: at most 20, and the number of
// the others. Do not call it while [Source.Load], [Source.Restore] or [Source.Run] runs.
func (s *Source) Refusable() (found []findings.Problem, more int) {
	now := s.served.Load()
	if now == nil {
		return nil, 0
	}
	return newRefusableLog(s).find(context.Background(), committed{now.contents, s.layout, now.bootstraps})
}

// changed returns the resources whose content differs from the last examination, in any order. Several
// groups may have the same resource: it is returned once.
func (r *refusableLog) changed(contents map[string]groupContent) func(yield func(Loaded) bool) {
	return func(yield func(Loaded) bool) {
		seen := map[*xds.Resource]bool{}
		for group, w := range contents {
			for url, c := range w.types {
				was := r.contents[group].types[url]
				for name, l := range c.at {
					if was != nil && was.at[name].Resource != nil && was.at[name].Sum == l.Sum {
						continue
					}
					if l.groups != nil { // only these can be in several groups
						if seen[l.Resource] {
							continue
						}
						seen[l.Resource] = true
					}
					if !yield(l) {
						return
					}
				}
			}
		}
	}
}

// newClashes returns the listeners on the same socket that the last examination did not find.
func (r *refusableLog) newClashes(in committed) (found []findings.Problem) {
	p := &plan{Source: &Source{checking: true}, layout: in.layout, next: in.contents}
	p.checkClaims()
	now := map[string]bool{}
	for _, q := range p.fatal {
		// The place of the other listener is the end of the message, and may move without a change of
		// the listeners.
		key := q.Message[:max(0, strings.LastIndex(q.Message, " at "))]
		now[key] = true
		if !r.clashes[key] {
			found = append(found, q)
		}
	}
	r.clashes = now
	return found
}

// newMissing returns the missing clusters, see [Source.required], that the last examination did not find.
func (r *refusableLog) newMissing(in committed) (found []findings.Problem) {
	now := map[string]bool{}
	for _, d := range r.source.required(newReach(&in.layout, in.contents, in.bootstraps)) {
		key := d.Group + " " + d.Message
		now[key] = true
		if !r.missing[key] {
			found = append(found, d.Problem)
		}
	}
	r.missing = now
	return found
}

// violations returns the reasons for which Envoy refuses a resource.
func (s *Source) violations(l Loaded) []validate.Violation {
	if !mayViolate(l) {
		return nil
	}
	m, err := s.message(l.Type.URL, l.Body)
	if err != nil {
		return nil
	}
	return s.examineValidator.Validate(m)
}

// mayViolate reports whether the rules of Envoy hold for a resource. Listeners of gRPC servers do not need
// all fields that Envoy's API requires.
func mayViolate(l Loaded) bool {
	ofServer := l.Type.Is(xds.Listener) && strings.HasPrefix(l.Name, serversTemplate)
	return !l.Type.V2 && !ofServer
}
