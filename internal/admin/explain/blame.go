package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// Whose fault a refusal is. A client refuses a response, which may have thousands of resources,
// and often names none: what it says is looked for in those that were refused, and these are
// looked into for what Envoy is known to refuse.

const (
	// maxExamined is how many resources of one refusal are looked into.
	maxExamined = 5000

	// maxGuilty is how many are told.
	maxGuilty = 5
)

// A trial is one refusal, before it is known whose fault it is.
type trial struct {
	e       *Explainer
	ctx     context.Context //nolint:containedctx // it lasts as long as a call
	groups  []string        // of the node
	t       *xds.Type
	text    string // what the client said
	refused []string
	sure    bool // each is at fault by itself: it is in quarantine
}

// guilty returns the resources that are at fault, with the line of the field and the reason, as
// far as they are known; none if nothing is.
func (x *trial) guilty() (all []api.Resource) {
	if len(x.refused) == 0 {
		return nil
	}
	if all = x.twice(); all != nil {
		return all
	}
	if x.sure {
		for _, name := range x.refused[:min(len(x.refused), maxGuilty)] {
			if one := x.faulty([]string{name}); one != nil {
				all = append(all, one...)
			} else {
				all = append(all, x.meant(name))
			}
		}
		return all
	}
	words := wordsOf(x.text)
	var named, others []string
	for _, name := range x.refused {
		if words[name] {
			named = append(named, name)
		} else {
			others = append(others, name)
		}
	}
	if all = x.faulty(named); all != nil {
		return all
	}
	if !slices.ContainsFunc(named, func(name string) bool { return words[marked+name] }) { // else the text means it
		if all = x.faulty(others); all != nil {
			return all
		}
	}
	if len(named) == 0 && len(others) == 1 {
		named = others
	}
	if marked := slices.DeleteFunc(slices.Clone(named), func(name string) bool { return !words[marked+name] }); len(marked) > 0 {
		named = marked // others are words, and names by chance
	}
	for _, name := range named[:min(len(named), maxGuilty)] {
		all = append(all, x.meant(name))
	}
	return all
}

// standing returns where a resource of the node's stands.
func (x *trial) standing(name string) (dir.Standing, bool) {
	for _, group := range x.groups {
		if s, ok := x.e.d.Source.Within(group, x.t, name); ok {
			return s, true
		}
	}
	return dir.Standing{}, false
}

// faulty returns those of which it is known that Envoy refuses them.
func (x *trial) faulty(names []string) (all []api.Resource) {
	for _, name := range names[:min(len(names), maxExamined)] {
		if x.ctx.Err() != nil || len(all) == maxGuilty {
			break
		}
		s, ok := x.standing(name)
		if !ok {
			continue
		}
		if x.e.sound.has(s.Resource) {
			continue
		}
		found := x.e.d.Source.Examine(s.Loaded)
		if len(found) == 0 {
			x.e.sound.add(s.Resource)
			continue
		}
		at := max(slices.IndexFunc(found, func(p findings.Problem) bool { return speaksOf(x.text, p.Path) }), 0)
		f := faultOf(found[at])
		all = append(all, api.Resource{Type: x.t.String(), Name: s.Name, Place: f.place, Reason: f.text})
	}
	return all
}

// speaksOf reports whether a text has the name of the last field of a path, as Envoy writes it
// in either of its ways: port_value, PortValue.
func speaksOf(text, path string) bool {
	last := path[strings.LastIndexByte(path, '.')+1:]
	last, _, _ = strings.Cut(last, "[")
	if last == "" {
		return false
	}
	var camel strings.Builder
	up := true
	for _, r := range last {
		if r == '_' {
			up = true
			continue
		}
		if up {
			r = unicode.ToUpper(r)
		}
		camel.WriteRune(r)
		up = false
	}
	return strings.Contains(text, last) || strings.Contains(text, camel.String())
}

// meant returns a resource that the text means, with the field whose value it quotes, if it does.
func (x *trial) meant(name string) api.Resource {
	r := api.Resource{Type: x.t.String(), Name: name}
	s, ok := x.standing(name)
	if !ok {
		return r
	}
	r.Place = s.Pos.String()
	m := x.e.message(s.Resource)
	if m == nil {
		return r
	}
	best, at := "", ""
	consider := func(v, path string) {
		if v != name && len(v) > max(len(best), 2) && (strings.Contains(x.text, "'"+v+"'") || strings.Contains(x.text, `"`+v+`"`) || strings.Contains(x.text, "("+v+")")) {
			best, at = v, path
		}
	}
	refs.Edit(x.e.d.Source.Types(), m, func(m protoreflect.Message, path refs.Path) bool {
		in := path.String()
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			below := strings.TrimPrefix(in+"."+string(f.Name()), ".")
			switch {
			case f.IsMap():
			case f.IsList() && f.Kind() == protoreflect.StringKind:
				for i := range v.List().Len() {
					consider(v.List().Get(i).String(), fmt.Sprintf("%s[%d]", below, i))
				}
			case f.IsList():
			case f.Kind() == protoreflect.StringKind:
				consider(v.String(), below)
			case f.Message() != nil && f.Message().FullName() == "google.protobuf.Any":
				url := v.Message().Get(f.Message().Fields().ByName("type_url")).String()
				consider(url[strings.LastIndexByte(url, '/')+1:], below)
			}
			return true
		})
		return false
	})
	if at != "" {
		r.Place = x.e.d.Source.FieldAt(s.Loaded, at)
	}
	return r
}

// twice returns resources that are called the same, whatever the names around them, if the text
// says that this is what is wrong.
func (x *trial) twice() (all []api.Resource) {
	if !strings.Contains(x.text, "duplicate") || x.t.Name == "" {
		return nil
	}
	words := wordsOf(x.text)
	by := map[string][]dir.Standing{} // their own name
	for _, group := range x.groups {
		for r := range x.e.d.Snapshot().View(group).Table(x.t).All() {
			m := x.e.message(r)
			s, ok := x.standing(r.Name)
			if m == nil || !ok || s.Resource != r { // another group hides it
				continue
			}
			f := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(x.t.Name))
			if f == nil {
				return nil
			}
			if own := m.ProtoReflect().Get(f).String(); words[own] {
				by[own] = append(by[own], s)
			}
		}
	}
	for _, own := range slices.Sorted(maps.Keys(by)) {
		if len(by[own]) < 2 {
			continue
		}
		slices.SortFunc(by[own], func(a, b dir.Standing) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
		})
		for _, s := range by[own][:min(len(by[own]), maxGuilty)] {
			all = append(all, api.Resource{Type: x.t.String(), Name: s.Name, Place: x.e.d.Source.FieldAt(s.Loaded, x.t.Name), Reason: fmt.Sprintf("two resources are called %s in their own field %s", quote(own), x.t.Name)})
		}
		return all
	}
	return nil
}

// marked stands before a word that has quotes around it, or a colon behind it.
const marked = "\x00"

// wordsOf returns what may be a name in a text: what stands between spaces, as it is, and without
// the marks around it. Those with marks are in it once more, behind marked.
func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		words[word] = true
		for _, marks := range []string{"\"'`,;.:", "\"'`,;.:()[]{}<>"} {
			if bare := strings.Trim(word, marks); bare != word && bare != "" {
				words[bare] = true
				if strings.ContainsAny(word, "\"'`") || strings.HasSuffix(word, ":") {
					words[marked+bare] = true
				}
			}
		}
	}
	return words
}

// refusedOf returns the names of a type that a client refused, and of which it has accepted
// nothing since; only those in quarantine, if there are any.
func (e *Explainer) refusedOf(st *server.Stream, s *protocol.Session, t *xds.Type) []string {
	if names := e.faults(st, t); names != nil { // these are why
		return names
	}
	return s.Refused(t)
}

// faults returns the names of a type that are in quarantine on a stream because they are at fault themselves.
func (e *Explainer) faults(st *server.Stream, t *xds.Type) (names []string) {
	for _, h := range e.held(st, t) {
		if h.By != quarantine.Searching && h.Needs.Type == nil {
			names = append(names, h.Name)
		}
	}
	return names
}

// try makes the trial of what a stream's client has refused.
func (e *Explainer) try(ctx context.Context, st *server.Stream, groups []string, t *xds.Type, text string, refused []string) *trial {
	x := &trial{e: e, ctx: ctx, groups: groups, t: t, text: text, refused: refused}
	if names := e.faults(st, t); names != nil && len(refused) > 0 {
		x.refused, x.sure = names, true
	}
	return x
}

// Blame returns the refusals with the resources that are at fault, each with the line of the
// field and what is wrong there, as far as that can be found. Where the client's text names no
// resource, it looks into those of the refused response, on one of the streams that refuse it.
// It takes the time that ctx has; what is not found by then stays as it is.
func (e *Explainer) Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal {
	out := slices.Clone(refusals)
	for i := range out {
		if ctx.Err() != nil {
			break
		}
		r := &out[i]
		t, err := typeNamed(r.Type)
		if err != nil || t == nil {
			continue
		}
		for _, node := range r.Nodes[:min(len(r.Nodes), 3)] {
			if all := e.blame(ctx, node, t, r.Error); all != nil {
				r.Resources = all
				break
			}
		}
	}
	return out
}

// blame looks for who is at fault for what one of the streams of a node refuses.
func (e *Explainer) blame(ctx context.Context, node string, t *xds.Type, text string) []api.Resource {
	for _, st := range e.d.Tracker.Streams(node) {
		if st.Type != nil && !st.Type.Is(t) {
			continue
		}
		var refused []string
		if st.Inspect(ctx, func(s *protocol.Session) { refused = e.refusedOf(st, s, t) }) != nil || len(refused) == 0 {
			continue
		}
		return e.try(ctx, st, e.d.Source.Decide(st.Node).Groups, t, text, refused).guilty()
	}
	return nil
}

// blamed lists those that are at fault.
func blamed(guilty []api.Resource) string {
	var all []string
	for _, g := range guilty {
		all = append(all, g.Type+" "+quote(g.Name))
	}
	return list(all, 3)
}

// Guilty returns the names of a type that are at fault for what a stream's client has refused with a text:
// those in which something is wrong, or which the text means. Of two that are at fault together it is each that
// the client has refused. None if that is not known.
func (e *Explainer) Guilty(ctx context.Context, st *server.Stream, t *xds.Type, text string) (names []string) {
	var refused []string
	if st.Inspect(ctx, func(s *protocol.Session) { refused = s.Refused(t) }) != nil || len(refused) == 0 {
		return nil
	}
	x := trial{e: e, ctx: ctx, groups: e.d.Source.Decide(st.Node).Groups, t: t, text: text, refused: refused}
	for _, r := range x.guilty() {
		if slices.Contains(refused, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}
