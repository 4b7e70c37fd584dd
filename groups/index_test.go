package groups

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
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

// The index uses the value that the fewest groups require. It does not use a value that all groups
// require.
func TestIndexUsesRarestValue(t *testing.T) {
	var defs []Definition
	for i := range 100 {
		defs = append(defs, Definition{Name: fmt.Sprint(i), Match: &Match{Cluster: Values{"web"}, Any: []Match{
			{ID: Values{fmt.Sprintf("n-%d", i)}}, {Metadata: []MetadataMatch{{Path: []string{"team"}, Values: Values{fmt.Sprint(i, "-*")}}}},
		}}})
	}
	r, problems := New(defs, Options{})
	if r == nil {
		t.Fatal(problems)
	}
	q := r.query(&xds.Node{Cluster: "web", ID: "n-7"})
	if got := r.index.candidates(q); len(got) != 1 || len(r.index.unindexed) > 0 {
		t.Errorf("%d candidates, %d are asked each time", len(got), len(r.index.unindexed))
	}
	if d := r.Decide(&xds.Node{Cluster: "web", ID: "n-7"}); fmt.Sprint(d.Groups) != "[7]" {
		t.Error(d)
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

// Queries are reused without any state of the previous one, also when generations start again.
func TestQueriesAreReused(t *testing.T) {
	m := Match{ID: Values{"a"}}
	r, _ := New([]Definition{{Name: "g", Match: &m, Include: []string{Default}}}, Options{})
	q := r.query(nil)
	for i := range q.states {
		q.states[i].candidate, q.states[i].member = 1, 1
	}
	q.generation = ^uint32(0)
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
