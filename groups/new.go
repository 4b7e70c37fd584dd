package groups

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

const (
	maxName    = 256 // bytes in the name of a group
	maxInclude = 100 // groups that one group includes, directly or indirectly
	maxHints   = 100 // wrong names for which New looks for a similar one
)

// Options are the options of [New]. The zero Options are for rules without CEL.
type Options struct {
	// CEL compiles an expression; see groups/cel.Compile. Nil: a rule in CEL is an error.
	CEL func(expression string) (Predicate, error)
}

// A Predicate is a compiled expression. It returns an error if it cannot be evaluated, for example
// because the node does not have a field. Then the group does not match, and the Decision has a note. A
// Predicate must be safe for concurrent use, and must not keep the node.
type Predicate func(n *Node) (bool, error)

// New compiles the rules of all groups, which may be in any order. The group Default may be missing. If
// one of the problems is an error, the rules are nil.
func New(definitions []Definition, o Options) (*Rules, []findings.Problem) {
	b := builder{options: o, defs: slices.Clone(definitions)}
	if !slices.ContainsFunc(b.defs, func(d Definition) bool { return d.Name == Default }) {
		b.defs = append(b.defs, Definition{Name: Default})
	}
	slices.SortStableFunc(b.defs, func(x, y Definition) int { return strings.Compare(x.Name, y.Name) })
	b.checkNames()
	b.checkIncludes()
	b.sort()
	rules := b.compile()
	return rules, b.problems
}

// A builder builds Rules.
type builder struct {
	options  Options
	defs     []Definition // sorted by name; after the call of sort, each before its includes
	byName   map[string]int
	include  [][]int // by definition: indexes of its includes
	problems []findings.Problem
	failed   int // number of errors in problems
	hints    int
}

func (b *builder) fail(d *Definition, code findings.Code, key, message, hint string) {
	b.failed++
	b.problems = append(b.problems, d.problem(code, key, message, hint))
}

func (b *builder) warn(d *Definition, code findings.Code, key, message, hint string) {
	p := d.problem(code, key, message, hint)
	p.Warning = true
	b.problems = append(b.problems, p)
}

// checkNames reports invalid and duplicate names, and keys of the root in other groups.
func (b *builder) checkNames() {
	b.byName = make(map[string]int, len(b.defs))
	for i := range b.defs {
		d := &b.defs[i]
		if d.Name == Default {
			b.checkRoot(d)
		} else if lane := strings.HasSuffix(d.Name, LaneSuffix); lane && d.Lane == nil {
			b.fail(d, findings.GroupName, "name", fmt.Sprintf("names that end in %q are reserved for the lanes of rollouts", LaneSuffix), "")
		} else if why := nameError(d.Name); why != "" && !lane { // the name of a lane's group is checked instead
			b.fail(d, findings.GroupName, "name", why, "")
		}
		if first, twice := b.byName[d.Name]; twice {
			hint := ""
			if file := b.defs[first].File; file != "" {
				hint = "the other is in " + file
			}
			b.fail(d, findings.GroupName, "name", fmt.Sprintf("two groups have the name %q", d.Name), hint)
			continue
		}
		b.byName[d.Name] = i
		if d.Name != Default && d.Otherwise != "" {
			b.fail(d, findings.MisplacedKey, "otherwise", `only the root may have "otherwise"`, "")
		}
	}
}

// checkRoot reports keys that the root must not have.
func (b *builder) checkRoot(d *Definition) {
	const why = "the root is the group of nodes that match no other"
	for _, k := range []struct {
		key string
		has bool
	}{{"include", len(d.Include) > 0}, {"match", d.Match != nil}, {"name", d.has("name")}, {"on_error", d.Alone}} {
		if k.has {
			b.fail(d, findings.MisplacedKey, k.key, fmt.Sprintf("the root has no %q", k.key), why)
		}
	}
}

// checkIncludes finds the included groups.
func (b *builder) checkIncludes() {
	b.include = make([][]int, len(b.defs))
	for i := range b.defs {
		d := &b.defs[i]
		for n, name := range d.Include {
			key := fmt.Sprintf("include[%d]", n)
			if at, ok := b.byName[name]; !ok {
				b.fail(d, findings.UnknownGroup, key, fmt.Sprintf("there is no group %q", name), b.suggestion(name))
			} else if b.defs[at].Lane != nil {
				b.fail(d, findings.UnknownGroup, key, fmt.Sprintf("%q is a lane, and a group must not include a lane", name), "")
			} else if !slices.Contains(b.include[i], at) {
				b.include[i] = append(b.include[i], at)
			}
		}
		if d.Name == Default && d.Otherwise != "" && d.Otherwise != Refuse {
			if _, ok := b.byName[d.Otherwise]; !ok {
				b.fail(d, findings.UnknownGroup, "otherwise", fmt.Sprintf("there is no group %q", d.Otherwise), cmp.Or(b.suggestion(d.Otherwise), `it is "default", "refuse" or the name of a group`))
			}
		}
	}
}

// suggestion returns a hint with a similar group name, or "".
func (b *builder) suggestion(name string) string {
	b.hints++
	if b.hints > maxHints || len(name) > maxName {
		return ""
	}
	names := func(yield func(string) bool) {
		for i := range b.defs {
			if !yield(b.defs[i].Name) {
				return
			}
		}
	}
	if near := protoyaml.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// sort sorts each group before the groups that it includes, and reports cycles.
func (b *builder) sort() {
	const (
		fresh = iota
		open
		done
	)
	state := make([]int, len(b.defs))
	var path, order []int
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		path = append(path, i)
		for _, next := range b.include[i] {
			switch state[next] {
			case open:
				b.reportCycle(path[slices.Index(path, next):])
			case fresh:
				visit(next)
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		order = append(order, i)
	}
	for i := range b.defs {
		if state[i] == fresh {
			visit(i)
		}
	}
	slices.Reverse(order)

	to := make([]int, len(order)) // new index by old index
	for now, i := range order {
		to[i] = now
	}
	defs, include := make([]Definition, len(order)), make([][]int, len(order))
	for i := range b.defs {
		defs[to[i]] = b.defs[i]
		b.byName[b.defs[i].Name] = to[i]
		for _, next := range b.include[i] {
			include[to[i]] = append(include[to[i]], to[next])
		}
	}
	b.defs, b.include = defs, include
	b.limitIncludes()
}

// reportCycle reports a cycle: each group includes the next one, and the last group includes the
// first.
func (b *builder) reportCycle(groups []int) {
	last, first := &b.defs[groups[len(groups)-1]], &b.defs[groups[0]]
	var text strings.Builder
	for n, i := range groups {
		if n > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "%q includes %q", b.defs[i].Name, b.defs[groups[(n+1)%len(groups)]].Name)
	}
	b.fail(last, findings.IncludeCycle, fmt.Sprintf("include[%d]", slices.Index(last.Include, first.Name)), text.String(), "")
}

// limitIncludes reports groups that include too many others, because each include costs time at
// each decision.
func (b *builder) limitIncludes() {
	seen := make([]int, len(b.defs)) // the group that last reached it, plus 1
	for i := range b.defs {
		all := []int{i}
		for n := 0; n < len(all) && len(all) <= maxInclude+1; n++ {
			for _, next := range b.include[all[n]] {
				if seen[next] != i+1 {
					seen[next] = i + 1
					all = append(all, next)
				}
			}
		}
		if len(all) > maxInclude+1 {
			b.fail(&b.defs[i], findings.UnknownGroup, "include", fmt.Sprintf("group %q includes more than %d groups", b.defs[i].Name, maxInclude), "")
		}
	}
}

// compile compiles the rules, and warns of groups that no node gets.
func (b *builder) compile() *Rules {
	r := &Rules{groups: make([]group, len(b.defs))}
	reached := make([]bool, len(b.defs))
	for i := range b.defs {
		d, g := &b.defs[i], &r.groups[i]
		*g = group{name: d.Name, include: b.include[i]}
		if d.Match == nil {
			continue
		}
		c := compiler{builder: b, def: d}
		g.rule = c.compileMatch(d.Match)
		if b.failed == 0 && g.rule.never() {
			b.warn(d, findings.UnusedGroup, "match", fmt.Sprintf("no node can match the rule of group %q", d.Name), "")
		}
	}
	b.compileLanes(r)
	if b.failed > 0 {
		return nil
	}
	root := b.byName[Default]
	switch name := cmp.Or(b.defs[root].Otherwise, Default); name {
	case Refuse:
		r.otherwise = noGroup
	default:
		r.otherwise = b.byName[name]
		reached[r.otherwise] = true
	}
	reached[root] = true      // an empty root directory is valid
	for i := range r.groups { // groups come before those that they include
		d := &b.defs[i]
		reached[i] = reached[i] || d.Match != nil || d.Lane != nil
		if !reached[i] {
			b.warn(d, findings.UnusedGroup, "name", fmt.Sprintf("no node gets group %q: it has no rule, and no group with nodes includes it", d.Name), "add match, or include it in another group")
			continue
		}
		for _, next := range r.groups[i].include {
			reached[next] = true
		}
	}
	ranks := make([]int, len(b.defs))
	for i := range ranks {
		ranks[i] = i
	}
	slices.SortFunc(ranks, func(x, y int) int { return compareRank(&b.defs[x], &b.defs[y]) })
	for rank, i := range ranks {
		r.groups[i].rank = rank
	}
	r.index = newIndex(r.groups)
	return r
}

var errNoCEL = errors.New("this program has no CEL: pass groups/cel.Compile in Options.CEL")
