package groups

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// Decisions with the index equal those that evaluate all rules: the same groups in the same order with
// the same reasons.
func TestIndexAgreesWithEvaluatingAllRules(t *testing.T) {
	for seed := range uint64(300) {
		w := world{rand.New(rand.NewPCG(seed, 1))}
		var defs []Definition
		for i := range 1 + w.IntN(30) {
			d := Definition{Name: fmt.Sprint("g", i), Priority: w.IntN(3)}
			if w.IntN(10) > 0 {
				m := w.match(0)
				d.Match = &m
			}
			for range w.IntN(3) {
				if i > 0 {
					d.Include = append(d.Include, fmt.Sprint("g", w.IntN(i)))
				}
			}
			defs = append(defs, d)
		}
		r, problems := New(defs, Options{CEL: odd})
		if r == nil {
			t.Fatalf("seed %d: %v", seed, problems)
		}
		plain := &Rules{groups: r.groups, otherwise: r.otherwise}
		for i, g := range r.groups {
			if g.rule != nil {
				plain.index.unindexed = append(plain.index.unindexed, i)
			}
		}
		for range 30 {
			n := w.node()
			got, want := r.Decide(n), plain.Decide(n)
			if !reflect.DeepEqual(got.Groups, want.Groups) || !reflect.DeepEqual(got.Reasons, want.Reasons) {
				t.Fatalf("seed %d: %+v\nindexed %v\nplain   %v", seed, n, got.Reasons, want.Reasons)
			}
		}
	}
}

// odd holds for ids of odd length, and has an error for an empty one.
func odd(string) (Predicate, error) {
	return func(n *Node) (bool, error) {
		if n.ID == "" {
			return false, errors.New("no id")
		}
		return len(n.ID)%2 == 1, nil
	}, nil
}

// A world makes rules and nodes from few words, so that many rules match.
type world struct{ *rand.Rand }

func (w world) word() string {
	return strings.Repeat(string("ab"[w.IntN(2)]), w.IntN(3)) + string("ab"[w.IntN(2)])
}

func (w world) value(others bool) any {
	if others && w.IntN(4) == 0 {
		return []any{true, false, 1.0, 2.0}[w.IntN(4)]
	}
	return w.word() + []string{"", "", "*", "**", "*b", `\*`}[w.IntN(6)]
}

func (w world) values(others bool) Values {
	v := Values{}
	for range w.IntN(4) {
		v = append(v, w.value(others))
	}
	return v
}

func (w world) match(depth int) (m Match) {
	for _, to := range []*Values{&m.ID, &m.Cluster, &m.Region, &m.Zone, &m.SubZone, &m.UserAgentName, &m.UserAgentVersion} {
		if w.IntN(8) == 0 {
			*to = w.values(false)
		}
	}
	for range w.IntN(3) {
		m.Metadata = append(m.Metadata, MetadataMatch{Path: []string{"a", "b", "a"}[w.IntN(2):][:1+w.IntN(2)], Values: w.values(true)})
	}
	if depth > 2 {
		return m
	}
	for range max(0, w.IntN(5)-2) {
		m.All = append(m.All, w.match(depth+1))
	}
	if w.IntN(4) == 0 {
		m.Any = []Match{}
		for range w.IntN(4) {
			m.Any = append(m.Any, w.match(depth+1))
		}
	}
	if w.IntN(4) == 0 {
		not := w.match(depth + 1)
		m.Not = &not
	}
	if w.IntN(6) == 0 {
		m.CEL = "odd"
	}
	return m
}

func (w world) any(depth int) any {
	switch w.IntN(6 - depth) {
	case 5, 4:
		m := map[string]any{}
		for range w.IntN(4) {
			m[string("ab"[w.IntN(2)])] = w.any(depth + 1)
		}
		return m
	case 3:
		var l []any
		for range w.IntN(4) {
			l = append(l, w.any(depth+1))
		}
		return l
	}
	return []any{true, false, 1.0, 2.0, nil, w.word(), w.word(), w.word()}[w.IntN(8)]
}

func (w world) node() *xds.Node {
	n := &xds.Node{}
	for _, to := range []*string{&n.ID, &n.Cluster, &n.Region, &n.Zone, &n.SubZone, &n.UserAgentName, &n.UserAgentVersion} {
		if w.IntN(4) > 0 {
			*to = w.word()
		}
	}
	if w.IntN(4) > 0 {
		s, err := structpb.NewStruct(map[string]any{"a": w.any(0), "b": w.any(0)})
		if err != nil {
			panic(err)
		}
		n.Metadata, err = proto.Marshal(s)
		if err != nil {
			panic(err)
		}
	}
	return n
}

// candidatesOf returns the number of groups that the index finds for a node, of 100 groups with these rules.
func candidatesOf(t *testing.T, match func(i int) Match, n *xds.Node) int {
	t.Helper()
	var defs []Definition
	for i := range 100 {
		m := match(i)
		defs = append(defs, Definition{Name: fmt.Sprint(i), Match: &m})
	}
	r, problems := New(defs, Options{CEL: odd})
	if r == nil {
		t.Fatal(problems)
	}
	return len(r.index.candidates(r.query(n)))
}

func required(key string, values ...any) Match {
	return Match{Metadata: []MetadataMatch{{Path: []string{key}, Values: values}}}
}

// The index uses the value that the fewest groups require. A value that all groups require is not used, wherever
// it is in the rule.
func TestIndexUsesRarestValue(t *testing.T) {
	node := nodeWith("n-7", map[string]any{"team": "7-a", "zero": "0"})
	forms := map[string]func(m Match) Match{
		"plain": func(m Match) Match { return m },
		"all":   func(m Match) Match { return Match{All: []Match{m, {}}} },
		"any":   func(m Match) Match { return Match{Any: []Match{m, m}} },
	}
	rare := map[string]func(i int) Match{
		"a value":           func(i int) Match { return Match{ID: Values{fmt.Sprintf("n-%d", i)}} },
		"one of two values": func(i int) Match { return Match{ID: Values{fmt.Sprintf("n-%d", i), fmt.Sprintf("m-%d", i)}} },
		"a prefix":          func(i int) Match { return required("team", fmt.Sprintf("%d-*", i)) },
		"one of two fields": func(i int) Match {
			return Match{Any: []Match{{ID: Values{fmt.Sprintf("n-%d", i)}}, required("team", fmt.Sprintf("%d-*", i))}}
		},
	}
	common := map[string]Match{
		"a value": {Cluster: Values{"edge"}}, "a prefix": {Cluster: Values{"ed*"}}, "a suffix": {Cluster: Values{"*ge"}},
		"metadata": required("zero", "0"), "an expression": {CEL: "odd"}, "a negation": {Not: &Match{Zone: Values{"z"}}},
	}
	for form, in := range forms {
		for of, rare := range rare {
			for and, common := range common {
				first := candidatesOf(t, func(i int) Match { return Match{All: []Match{in(rare(i)), in(common)}} }, node)
				last := candidatesOf(t, func(i int) Match { return Match{All: []Match{in(common), in(rare(i))}} }, node)
				if first != 1 || last != 1 {
					t.Errorf("%s that is rare, and %s that is common (%s): %d and %d candidates", of, and, form, first, last)
				}
			}
		}
	}
}

// Each kind of value finds its groups, and only these.
func TestIndexFindsEachKindOfValue(t *testing.T) {
	node := nodeWith("", map[string]any{"n": 7.0, "b": true, "t": "7", "77": 1.0})
	for kind, c := range map[string]struct {
		match func(i int) Match
		want  int
	}{
		"a number":            {func(i int) Match { return required("n", float64(i)) }, 1},
		"a bool":              {func(i int) Match { return required("b", i >= 10) }, 90},
		"a text":              {func(i int) Match { return required("t", fmt.Sprint(i)) }, 1},
		"a text of others":    {func(i int) Match { return required("n", fmt.Sprint(i)) }, 0},
		"a key":               {func(i int) Match { return required(fmt.Sprint(i), 1.0) }, 1},
		"no text":             {func(i int) Match { return Match{ID: Values{[]string{"", "x"}[i/50]}} }, 50},
		"a text, no prefix":   {func(i int) Match { return Match{Cluster: Values{[]string{"edg", "edge", "e"}[i%3]}} }, 33},
		"any, or one text":    {func(i int) Match { return Match{Cluster: Values{[]string{"*", "x"}[i/50]}} }, 50},
		"a value of no value": {func(i int) Match { return Match{Cluster: Values{}} }, 0},
	} {
		t.Run(kind, func(t *testing.T) {
			if got := candidatesOf(t, c.match, node); got != c.want {
				t.Errorf("%d candidates, want %d", got, c.want)
			}
		})
	}
}

// Of a value and a prefix that are equally rare, the index uses the value: more nodes have the prefix.
func TestIndexPrefersValueToPrefix(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		got := candidatesOf(t, func(i int) Match {
			parts := []Match{{ID: Values{fmt.Sprintf("n-%d*", i)}}, {Cluster: Values{fmt.Sprintf("c-%d", i)}}}
			if reverse {
				slices.Reverse(parts)
			}
			return Match{All: parts}
		}, &xds.Node{ID: "n-77", Cluster: "c-5"})
		if got != 1 { // c-5, and not n-7* with n-77*
			t.Errorf("%d candidates", got)
		}
	}
}

// Two lists of keys that have the same characters are different.
func TestIndexSeparatesKeys(t *testing.T) {
	path := [][]string{{"a", "b"}, {"ab"}}
	got := candidatesOf(t, func(i int) Match {
		return Match{Metadata: []MetadataMatch{{Path: path[i/99], Values: Values{"x"}}, {Path: []string{"n"}, Values: Values{float64(i / 50)}}}}
	}, nodeWith("", map[string]any{"n": 1.0, "ab": "y"}))
	if got != 49 { // one group requires ab, and the others of n find it, too
		t.Errorf("%d candidates", got)
	}
}

// Metadata is decoded only for a rule that needs it.
func TestMetadataIsDecodedOnDemand(t *testing.T) {
	broken := []byte{0xff}
	for _, c := range []struct {
		match Match
		notes int
	}{
		{Match{Cluster: Values{"a"}}, 0},
		{Match{Cluster: Values{"b"}, Not: &Match{Metadata: []MetadataMatch{{[]string{"a"}, Values{"b"}}}}}, 0},
		{Match{Cluster: Values{"a"}, Not: &Match{Metadata: []MetadataMatch{{[]string{"a"}, Values{"b"}}}}}, 1},
	} {
		r, _ := New([]Definition{{Name: "g", Match: &c.match}}, Options{})
		if d := r.Decide(&xds.Node{Cluster: "a", Metadata: broken}); len(d.Notes) != c.notes {
			t.Errorf("%+v: %v", c.match, d.Notes)
		}
	}
}

// Queries are reused without any state of the previous one.
func TestQueriesAreReused(t *testing.T) {
	m := Match{ID: Values{"a"}}
	r, _ := New([]Definition{{Name: "g", Match: &m, Include: []string{Default}}}, Options{})
	q := r.query(nil)
	for range 3 {
		r.queries.Put(q)
		if d := r.Decide(&xds.Node{ID: "a"}); fmt.Sprint(d.Groups) != "[g default]" {
			t.Error(d)
		}
		if d := r.Decide(&xds.Node{}); fmt.Sprint(d.Groups) != "[default]" {
			t.Error(d)
		}
	}
}
