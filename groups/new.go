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
	maxName    = 256 // bytes of a group's name
	maxInclude = 100 // groups that one brings in, those included that these bring in
	maxHints   = 100 // names that are wrong, for which near ones are looked for
)

// Options are what [New] needs besides the groups. The zero Options do for rules without CEL.
type Options struct {
	// CEL compiles an expression, such as groups/cel.Compile does. Nil: a rule in CEL is an
	// error.
	CEL func(expression string) (Predicate, error)
}

// A Predicate is a compiled expression. Its error says what kept it from being evaluated: a
// field that is missing, a value of the wrong type. Then the group does not match, and the
// Decision has a note. It must be safe for concurrent use, and must not keep the node.
type Predicate func(n *Node) (bool, error)

// New makes rules of all groups that there are, in any order; the group Default need not be
// among them. If there is an error among the problems the rules are nil.
func New(definitions []Definition, o Options) (*Rules, []findings.Problem) {
	b := builder{options: o, defs: slices.Clone(definitions)}
	if !slices.ContainsFunc(b.defs, func(d Definition) bool { return d.Name == Default }) {
		b.defs = append(b.defs, Definition{Name: Default})
	}
	slices.SortStableFunc(b.defs, func(x, y Definition) int { return strings.Compare(x.Name, y.Name) })
	b.names()
	b.includes()
	if b.failed == 0 {
		b.sort()
	}
	rules := b.compile()
	if b.failed > 0 {
		return nil, b.problems
	}
	return rules, b.problems
}

// A builder makes Rules.
type builder struct {
	options  Options
	defs     []Definition // by name; after sort, who includes comes first
	at       map[string]int
	include  [][]int // by definition
	problems []findings.Problem
	failed   int // how many of the problems are errors
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

// names finds wrong names and wrong keys of the root and of the others.
func (b *builder) names() {
	b.at = make(map[string]int, len(b.defs))
	for i := range b.defs {
		d := &b.defs[i]
		if d.Name == Default {
			b.root(d)
		} else if lane := strings.HasSuffix(d.Name, LaneSuffix); lane && d.Lane == nil {
			b.fail(d, findings.GroupName, "name", fmt.Sprintf("a name that ends in %q is that of a lane, which a rollout makes", LaneSuffix), "")
		} else if why := wrongName(d.Name); why != "" && !lane { // that of the group that it is of is judged
			b.fail(d, findings.GroupName, "name", why, "")
		}
		if first, twice := b.at[d.Name]; twice {
			hint := ""
			if file := b.defs[first].File; file != "" {
				hint = "the other is in " + file
			}
			b.fail(d, findings.GroupName, "name", fmt.Sprintf("two groups have the name %q", d.Name), hint)
			continue
		}
		b.at[d.Name] = i
		if d.Name != Default && d.Otherwise != "" {
			b.fail(d, findings.MisplacedKey, "otherwise", `only the root may have "otherwise"`, "")
		}
	}
}

// root finds what the root cannot have.
func (b *builder) root(d *Definition) {
	const why = "the root is the group of nodes that match no other"
	for key, has := range map[string]bool{"name": d.has("name"), "match": d.Match != nil, "include": len(d.Include) > 0, "on_error": d.Alone} {
		if has {
			b.fail(d, findings.MisplacedKey, key, fmt.Sprintf("the root has no %q", key), why)
		}
	}
	slices.SortFunc(b.problems, func(x, y findings.Problem) int { return cmp.Compare(x.Path, y.Path) })
}

// includes finds the groups that others name.
func (b *builder) includes() {
	b.include = make([][]int, len(b.defs))
	for i := range b.defs {
		d := &b.defs[i]
		for n, name := range d.Include {
			key := fmt.Sprintf("include[%d]", n)
			if at, ok := b.at[name]; !ok {
				b.fail(d, findings.UnknownGroup, key, fmt.Sprintf("there is no group %q", name), b.meant(name))
			} else if b.defs[at].Lane != nil {
				b.fail(d, findings.UnknownGroup, key, fmt.Sprintf("%q is a lane, which no group includes", name), "")
			} else if !slices.Contains(b.include[i], at) {
				b.include[i] = append(b.include[i], at)
			}
		}
		if d.Name == Default && d.Otherwise != "" && d.Otherwise != Refuse && d.Otherwise != Default {
			if _, ok := b.at[d.Otherwise]; !ok {
				b.fail(d, findings.UnknownGroup, "otherwise", fmt.Sprintf("there is no group %q", d.Otherwise), cmp.Or(b.meant(d.Otherwise), `it is "default", "refuse" or the name of a group`))
			}
		}
	}
}

// meant returns a hint at the group that a wrong name means; "" if none is near.
func (b *builder) meant(name string) string {
	if b.hints++; b.hints > maxHints || len(name) > maxName {
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

// sort puts who includes before what it includes, and finds circles.
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
				b.circle(path[slices.Index(path, next):])
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

	to := make([]int, len(order)) // where each is now
	for now, i := range order {
		to[i] = now
	}
	defs, include := make([]Definition, len(order)), make([][]int, len(order))
	for i := range b.defs {
		defs[to[i]] = b.defs[i]
		b.at[b.defs[i].Name] = to[i]
		for _, next := range b.include[i] {
			include[to[i]] = append(include[to[i]], to[next])
		}
	}
	b.defs, b.include = defs, include
	if b.failed == 0 {
		b.bound()
	}
}

// circle reports groups that include each other, each the next, and the last the first.
func (b *builder) circle(groups []int) {
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

// bound finds groups that bring in too many others: each costs something for each node.
func (b *builder) bound() {
	seen := make([]int, len(b.defs)) // by whom last, from 1
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
			b.fail(&b.defs[i], findings.UnknownGroup, "include", fmt.Sprintf("group %q brings in more than %d groups", b.defs[i].Name, maxInclude), "")
		}
	}
}

// compile makes the rules ready to be asked, and warns of groups that no node gets.
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
		if g.rule = c.match(d.Match); b.failed == 0 && g.rule.never() {
			b.warn(d, findings.UnusedGroup, "match", fmt.Sprintf("no node can match the rule of group %q", d.Name), "")
			reached[i] = true // it is told once
		}
	}
	b.lanes(r)
	if b.failed > 0 {
		return nil
	}
	root := b.at[Default]
	switch name := cmp.Or(b.defs[root].Otherwise, Default); name {
	case Refuse:
		r.otherwise = -1
	default:
		r.otherwise = b.at[name]
		reached[r.otherwise] = true
	}
	reached[root] = true      // of a directory without files for it nothing is wrong
	for i := range r.groups { // who includes comes first
		d := &b.defs[i]
		if reached[i] = reached[i] || d.Match != nil || d.Lane != nil; !reached[i] {
			b.warn(d, findings.UnusedGroup, "name", fmt.Sprintf("no node gets group %q: it has no rule, and no group that nodes get includes it", d.Name), "add match, or name it in the include of another")
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
	slices.SortFunc(ranks, func(x, y int) int { return less(&b.defs[x], &b.defs[y]) })
	for rank, i := range ranks {
		r.groups[i].rank = rank
	}
	r.index = newIndex(r.groups)
	return r
}

var errNoCEL = errors.New("this program has no CEL: pass groups/cel.Compile in Options.CEL")
