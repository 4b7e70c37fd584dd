package explain

import (
	"fmt"
	"strings"
	"testing"
)

// A preview decides the groups of a node that no client has, in YAML or JSON, with the rule of each group and the
// resources that it would get. A text that is not a node is an error with its place.
func TestPreview(t *testing.T) {
	within(t, "preview", func(t *testing.T) {
		r := start(t, "edge/group.yaml", "match: {cluster: edge, metadata: {team: pay}}\n", "edge/a.yaml", plainCluster, "group.yaml", "otherwise: refuse\n", "b.yaml", strings.Replace(plainCluster, "name: a", "name: b", 1))
		for text, want := range map[string]string{
			"id: x\ncluster: edge\nmetadata: {team: pay}":                 "edge",
			`{"id": "x", "cluster": "edge", "metadata": {"team": "pay"}}`: "edge",
			"cluster: edge":             "refused",
			"id: [":                     "node:1:",
			"colour: red":               `node:1:1: unknown field "colour"`,
			"- id: x":                   "node:1:1",
			"id: x\n---\nid: y":         "2 documents",
			"metadata: {team: &a [*a]}": "node:1:",
		} {
			p, err := r.Preview([]byte(text))
			got := fmt.Sprint(err)
			if err == nil {
				got = ""
				for _, g := range p.Groups {
					got += g.Name + " because " + g.Why + " at " + g.Place + "; "
				}
				for _, one := range p.Resources {
					got += one.Type + " " + one.Name + " of " + one.Group + " at " + one.Place + "; "
				}
				if p.Refused {
					got += "refused"
				}
			}
			if !strings.Contains(got, want) {
				t.Errorf("%q: %s, want %s", text, got, want)
			}
		}
	})
}
