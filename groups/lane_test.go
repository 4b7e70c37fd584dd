package groups

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// rulesOf compiles the rules of some group.yaml files and lanes.
func rulesOf(t *testing.T, files map[string]string, lanes ...Lane) (*Rules, string) {
	t.Helper()
	var defs []Definition
	var text []string
	add := func(name, file string) {
		d, problems := Parse(name+"/group.yaml", []byte(file))
		for _, p := range problems {
			text = append(text, p.Error())
		}
		if d.Name == "" {
			d.Name = name
		}
		defs = append(defs, d)
	}
	for name, file := range files {
		add(name, file)
	}
	for _, l := range lanes {
		add("x", string(l.Definition()))
	}
	r, problems := New(defs, Options{})
	for _, p := range problems {
		text = append(text, p.Error())
	}
	return r, strings.Join(text, "\n")
}

func nodeWith(id string, metadata map[string]any) *xds.Node {
	s, err := structpb.NewStruct(metadata)
	if err != nil {
		panic(err)
	}
	b, err := proto.Marshal(s)
	if err != nil {
		panic(err)
	}
	return &xds.Node{ID: id, Cluster: "edge", Metadata: b}
}

// The nodes in a lane depend only on the node and the lane. A larger percentage includes the nodes of a
// smaller one.
func TestLanes(t *testing.T) {
	files := map[string]string{"edge": "match: {cluster: edge}\ninclude: [default]\n", "web": "match: {id: [n7, n8]}\n"}
	picked := func(l Lane) (all []string) {
		t.Helper()
		r, problems := rulesOf(t, files, l)
		if problems != "" {
			t.Fatal(problems)
		}
		for i := range 1000 {
			n := nodeWith(fmt.Sprintf("n%d", i), map[string]any{"canary": i%100 == 3, "ring": "one"})
			d := r.Decide(n)
			switch {
			case d.Groups[0] == "edge@next" && d.Groups[len(d.Groups)-1] == "default":
				all = append(all, n.ID)
				if !strings.HasPrefix(d.Reasons[0].String(), "group edge@next: in the place of edge, by rollout x: ") {
					t.Fatal(d.Reasons[0])
				}
			case !slices.Contains(d.Groups, "edge"):
				t.Fatal(d.Groups)
			}
		}
		return all
	}
	lane := Lane{Of: "edge", Rollout: "x"}
	if got := picked(lane); got != nil {
		t.Error(got)
	}
	lane.Groups = []string{"web"}
	if got := picked(lane); !slices.Equal(got, []string{"n7", "n8"}) {
		t.Error(got)
	}
	lane.Groups, lane.Labels = nil, map[string]string{"canary": "true", "ring": "o*"}
	if got := picked(lane); len(got) != 10 || got[0] != "n3" {
		t.Error(got)
	}
	lane.Labels = map[string]string{"canary": "true", "ring": "two"}
	if got := picked(lane); got != nil {
		t.Error(got)
	}
	lane.Labels = nil
	var before []string
	for _, percent := range []float64{0.5, 1, 10, 50, 100} {
		lane.Percent = percent
		got := picked(lane)
		if want := percent * 10; float64(len(got)) < want*0.5-3 || float64(len(got)) > want*1.5+3 {
			t.Errorf("%v %%: %d of 1000", percent, len(got))
		}
		for _, id := range before {
			if !slices.Contains(got, id) {
				t.Errorf("%v %%: %s is not in it any more", percent, id)
			}
		}
		before = got
	}
	lane.Percent, lane.Rollout = 10, "y"
	other, _ := rulesOf(t, files, lane)
	lane.Rollout = "x"
	this, _ := rulesOf(t, files, lane)
	same := 0
	for i := range 1000 {
		n := nodeWith(fmt.Sprintf("n%d", i), nil)
		if a, b := this.Decide(n).Groups[0], other.Decide(n).Groups[0]; a == b && a == "edge@next" {
			same++
		}
	}
	if same > 40 {
		t.Errorf("%d nodes are first in both rollouts", same)
	}
	if d := this.Decide(nodeWith("", nil)); d.Groups[0] != "edge" {
		t.Error(d.Groups)
	}
	lane.Percent = 100
	all, _ := rulesOf(t, files, lane)
	if d := all.Decide(nodeWith("", nil)); d.Groups[0] != "edge@next" {
		t.Error(d.Groups)
	}
	root, problems := rulesOf(t, files, Lane{Of: Default, Rollout: "x", Percent: 100})
	if d := root.Decide(nodeWith("n", nil)); problems != "" || !slices.Equal(d.Groups, []string{"edge", "default@next"}) {
		t.Error(d.Groups, problems)
	}
	if d := root.Decide(&xds.Node{ID: "none"}); !slices.Equal(d.Groups, []string{"default@next"}) {
		t.Error(d.Groups)
	}
}

func TestLaneErrors(t *testing.T) {
	edge := "match: {cluster: edge}\n"
	for say, files := range map[string]map[string]string{
		`names that end in "@next" are reserved`:                     {"edge@next": edge},
		`there is no group "web" for this lane`:                      {"web@next": "lane: {of: web}\n"},
		`the lane of group "edge" is "edge@next"`:                    {"edge": edge, "other@next": "lane: {of: edge}\n"},
		"a lane has neither match, include nor on_error":             {"edge": edge, "edge@next": "lane: {of: edge}\nmatch: {cluster: x}\n"},
		`"edge@next" is a lane, and a group must not include a lane`: {"edge": edge, "edge@next": "lane: {of: edge}\n", "web": "match: {cluster: x}\ninclude: [edge@next]\n"},
		"a number from 0 to 100 is needed":                           {"edge": edge, "edge@next": "lane: {of: edge, percent: 101}\n"},
		"unknown key":                                                {"edge": edge, "edge@next": "lane: {of: edge, percnt: 1}\n"},
	} {
		if _, problems := rulesOf(t, files); !strings.Contains(problems, say) {
			t.Errorf("%v: %s, want %s", files, problems, say)
		}
	}
}
