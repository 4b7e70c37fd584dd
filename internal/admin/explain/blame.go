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

// This file finds the faulty resource of a refusal. A client refuses a whole response. The response may
// have thousands of resources, and the client's error text often names none of them. So the search
// compares the text with the names of the refused resources, and examines these resources for faults that
// Envoy is known to refuse.

const (
	// maxExamined is the maximum number of resources that one search examines.
	maxExamined = 5000

	// maxGuilty is the maximum number of faulty resources that one search returns.
	maxGuilty = 5
)

// A trial is the search for the faulty resources of one refusal.
type trial struct {
	e       *Explainer
	ctx     context.Context // ctx of one call; the trial ends with that call
	groups  []string        // groups of the node
	t       *xds.Type
	text    string // the client's error text
	refused []string
	sure    bool // all refused resources are in quarantine as faulty
	single  bool // find no other listener on the socket of a refused one
	named   bool // set by guilty: the text names the faulty resources, or there is only one
}

// guilty returns the faulty resources. Each has the place of the faulty field and the reason if the
// search has found them. Without a faulty resource the result is nil.
func (x *trial) guilty() (all []api.Resource) {
	if len(x.refused) == 0 {
		return nil
	}
	x.named = true
	all = x.duplicates()
	if all != nil {
		return all
	}
	all = x.clashes()
	if all != nil {
		return all
	}
	if x.sure {
		for _, name := range x.refused[:min(len(x.refused), maxGuilty)] {
			if one := x.faulty([]string{name}); one != nil {
				all = append(all, one...)
			} else {
				all = append(all, x.suspect(name))
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
	all = x.faulty(named)
	if all != nil {
		return all
	}
	if !slices.ContainsFunc(named, func(name string) bool { return words[quotedWord+name] }) { // otherwise the text quotes the faulty resource
		all = x.faulty(others)
		if all != nil {
			x.named = len(x.refused) == 1
			return all
		}
	}
	if len(named) == 0 && len(others) == 1 {
		named = others
	}
	quoted := slices.DeleteFunc(slices.Clone(named), func(name string) bool { return !words[quotedWord+name] })
	if len(quoted) > 0 {
		named = quoted // a name without quotes may be an ordinary word
	}
	for _, name := range named[:min(len(named), maxGuilty)] {
		all = append(all, x.suspect(name))
	}
	return all
}

// addressTexts are parts of Envoy's texts about the address of a listener.
var addressTexts = []string{"duplicate address", "annot bind", "ddress already in use"}

// isAboutAddress reports whether the client refused a listener because of its address.
func (x *trial) isAboutAddress() bool {
	return x.t.Is(xds.Listener) && slices.ContainsFunc(addressTexts, func(part string) bool { return strings.Contains(x.text, part) })
}

// clashes returns the listeners of the node on the socket of a refused one, if the client refused it because of its
// address. The client names the one that it examined last, which is not always the new one. So the result has both,
// or those in quarantine.
func (x *trial) clashes() (all []api.Resource) {
	if !x.isAboutAddress() || x.single {
		return nil
	}
	words := wordsOf(x.text)
	seen := map[string]bool{}
	add := func(s dir.Occurrence) {
		found, _ := x.e.d.Source.SocketClashes(x.groups, s.Loaded)
		if len(found) == 0 || seen[s.Name] || len(all) == maxGuilty || x.sure && !slices.Contains(x.refused, s.Name) {
			return
		}
		seen[s.Name] = true
		f := faultOf(found[0])
		all = append(all, api.Resource{Type: x.t.String(), Name: s.Name, Place: f.place, Reason: f.text})
	}
	for _, name := range x.refused[:min(len(x.refused), maxExamined)] {
		s, ok := x.lookup(name)
		if !ok || !x.sure && !words[name] || x.ctx.Err() != nil {
			continue
		}
		add(s)
		_, others := x.e.d.Source.SocketClashes(x.groups, s.Loaded)
		for _, other := range others {
			add(other)
		}
	}
	return all
}

// lookup returns the loaded resource with a name, from the first group of the node that has the name.
func (x *trial) lookup(name string) (dir.Occurrence, bool) {
	for _, group := range x.groups {
		if s, ok := x.e.d.Source.Lookup(group, x.t, name); ok {
			return s, true
		}
	}
	return dir.Occurrence{}, false
}

// faulty examines the resources with these names, and returns those that Envoy is known to refuse.
func (x *trial) faulty(names []string) (all []api.Resource) {
	for _, name := range names[:min(len(names), maxExamined)] {
		if x.ctx.Err() != nil || len(all) == maxGuilty {
			break
		}
		s, ok := x.lookup(name)
		if !ok {
			continue
		}
		if x.e.faultless.has(s.Resource) {
			continue
		}
		found := x.e.d.Source.Examine(s.Loaded)
		if len(found) == 0 {
			x.e.faultless.add(s.Resource)
			continue
		}
		at := max(slices.IndexFunc(found, func(p findings.Problem) bool { return mentionsField(x.text, p.Path) }), 0)
		f := faultOf(found[at])
		all = append(all, api.Resource{Type: x.t.String(), Name: s.Name, Place: f.place, Reason: f.text})
	}
	return all
}

// mentionsField reports whether text contains the last field name of a path, in one of Envoy's forms:
// port_value or PortValue.
func mentionsField(text, path string) bool {
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

// suspect returns the resource with a name, without a reason. If the text is about the address, or quotes the value
// of a field, the place is that of the field; otherwise it is that of the resource.
func (x *trial) suspect(name string) api.Resource {
	r := api.Resource{Type: x.t.String(), Name: name}
	s, ok := x.lookup(name)
	if !ok {
		return r
	}
	r.Place = s.Pos.String()
	if at, ok := s.SocketAt(x.text); ok && x.isAboutAddress() {
		r.Place = at.String()
		return r
	}
	m := x.e.message(s.Resource)
	if m == nil {
		return r
	}
	best, at := "", ""
	consider := func(v, path string) {
		if v != name && len(v) > max(len(best), 2) && (strings.Contains(x.text, "'"+v+"'") || strings.Contains(x.text, `"`+v+`"`) || strings.Contains(x.text, "("+v+")")) {
			if _, another := x.lookup(v); !another { // otherwise the text names that resource
				best, at = v, path
			}
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

// duplicates returns resources with equal names in the message, although their resource names differ.
// It returns nil unless the text contains "duplicate".
func (x *trial) duplicates() (all []api.Resource) {
	if !strings.Contains(x.text, "duplicate") || x.t.Name == "" {
		return nil
	}
	words := wordsOf(x.text)
	by := map[string][]dir.Occurrence{} // by the name in the message's name field
	for _, group := range x.groups {
		for r := range x.e.d.Snapshot().View(group).Table(x.t).All() {
			if x.ctx.Err() != nil {
				return nil
			}
			m := x.e.message(r)
			s, ok := x.lookup(r.Name)
			if m == nil || !ok || s.Resource != r { // an earlier group has a resource with this name
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
		slices.SortFunc(by[own], func(a, b dir.Occurrence) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
		})
		for _, s := range by[own][:min(len(by[own]), maxGuilty)] {
			all = append(all, api.Resource{Type: x.t.String(), Name: s.Name, Place: x.e.d.Source.FieldAt(s.Loaded, x.t.Name), Reason: fmt.Sprintf("two resources have the value %s in their field %s", quote(own), x.t.Name)})
		}
		return all
	}
	return nil
}

// quotedWord is a prefix that marks words with quotation marks around them or a colon after them.
const quotedWord = "\x00"

// wordsOf returns the words of a text, with and without surrounding punctuation. Quoted words and words
// before a colon are also in the result with the prefix quotedWord.
func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		words[word] = true
		for _, marks := range []string{"\"'`,;.:", "\"'`,;.:()[]{}<>"} {
			if bare := strings.Trim(word, marks); bare != word && bare != "" {
				words[bare] = true
				if strings.ContainsAny(word, "\"'`") || strings.HasSuffix(word, ":") {
					words[quotedWord+bare] = true
				}
			}
		}
	}
	return words
}

// refusedOf returns the names of a type that a client refused and has not accepted since. If some of
// the resources are in quarantine as faulty, it returns only their names.
func (e *Explainer) refusedOf(st *server.Stream, s *protocol.Session, t *xds.Type) []string {
	if names := e.faults(st, t); names != nil { // these resources caused the refusal
		return names
	}
	return s.Refused(t)
}

// faults returns the names of a type that are in quarantine for a stream as faulty. It leaves out
// resources that only refer to a faulty one, and resources that the quarantine still tests.
func (e *Explainer) faults(st *server.Stream, t *xds.Type) (names []string) {
	for _, h := range e.held(st, t) {
		if h.By != quarantine.Searching && h.RefersTo.Type == nil {
			names = append(names, h.Name)
		}
	}
	return names
}

// try prepares the search among the resources that the client of a stream refused.
func (e *Explainer) try(ctx context.Context, st *server.Stream, groups []string, t *xds.Type, text string, refused []string) *trial {
	x := &trial{e: e, ctx: ctx, groups: groups, t: t, text: text, refused: refused}
	if names := e.faults(st, t); names != nil && len(refused) > 0 {
		x.refused, x.sure = names, true
	}
	return x
}

// Blame returns the refusals with their faulty resources. Each resource has the place of the faulty
// field and the reason if Blame finds them. For each refusal it examines one stream of one node. If
// ctx ends, the remaining refusals are unchanged.
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

// blame finds the faulty resources of a refusal on one stream of a node.
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

// Suspects returns the faulty resources of type t that a node refused with an error text, each with its
// place. If none is known, and the text has none of the names, it returns all names. The names are those of
// the refused response; the groups are those of the node. Suspects also works for a node that has
// disconnected.
func (e *Explainer) Suspects(ctx context.Context, node string, groups []string, t *xds.Type, text string, names []string) []api.Resource {
	if all := e.blame(ctx, node, t, text); all != nil {
		return all
	}
	if all := e.Faulty(ctx, groups, t, text, names); all != nil {
		return all
	}
	all := make([]api.Resource, len(names))
	for i, name := range names {
		all[i] = api.Resource{Type: t.String(), Name: name}
	}
	return all
}

// Faulty returns the faulty resources among the names of a refused response, each with the place of the
// faulty field. Without a known fault, and without a name in the error text, the result is nil. The groups are
// those of the node.
func (e *Explainer) Faulty(ctx context.Context, groups []string, t *xds.Type, text string, names []string) []api.Resource {
	x := &trial{e: e, ctx: ctx, groups: groups, t: t, text: text, refused: names}
	return x.guilty()
}

// placed returns a text with the names of faulty resources and the first place, if it is known.
func placed(guilty []api.Resource) string {
	text := blamed(guilty)
	if at := guilty[0].Place; at != "" {
		text += " (" + at + ")"
	}
	return text
}

// blamed returns a text with the names of faulty resources.
func blamed(guilty []api.Resource) string {
	var all []string
	for _, g := range guilty {
		all = append(all, g.Type+" "+quote(g.Name))
	}
	return list(all, 3)
}

// Guilty returns the names of the faulty resources of type t in a response that a stream's client
// refused. Such a resource has a known fault, or the text names it: then named is true. Of resources that
// conflict with each other, Guilty returns only those in the refused response. Without a faulty resource the
// result is nil. If there may be more, more is true.
func (e *Explainer) Guilty(ctx context.Context, st *server.Stream, t *xds.Type, text string) (names []string, named, more bool) {
	var refused []string
	if st.Inspect(ctx, func(s *protocol.Session) { refused = s.Refused(t) }) != nil || len(refused) == 0 {
		return nil, false, false
	}
	x := trial{e: e, ctx: ctx, groups: e.d.Source.Decide(st.Node).Groups, t: t, text: text, refused: refused, single: true}
	all := x.guilty()
	for _, r := range all {
		if slices.Contains(refused, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names, x.named, len(all) >= maxGuilty
}
