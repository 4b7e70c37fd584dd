package groups

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// LaneSuffix ends the name of each lane, and of no other group.
const LaneSuffix = "@next"

// A Lane is a group that some of the nodes that get another group get in its place, while a rollout of that is under
// way: those for which one of the conditions holds. Which these are depends on the node and on the
// lane alone, so all servers say the same. It is written by who serves a rollout, not by people.
type Lane struct {
	Of      string  // the other group
	Rollout string  // its ID: in another rollout other nodes are in a share
	Percent float64 // this share of all nodes, by the hash of their id; from 100 on all, also those without one
	Labels  map[string]string
	Groups  []string // the node gets one of these
}

// BaseOf returns the group that a group is a lane of, and itself if it is none.
func BaseOf(group string) string { return strings.TrimSuffix(group, LaneSuffix) }

// Definition returns the group.yaml of the lane.
func (l Lane) Definition() []byte {
	all := map[string]any{"of": l.Of, "rollout": l.Rollout}
	if l.Percent > 0 {
		all["percent"] = l.Percent
	}
	if len(l.Labels) > 0 {
		all["labels"] = l.Labels
	}
	if len(l.Groups) > 0 {
		all["groups"] = l.Groups
	}
	b, err := json.Marshal(map[string]any{"name": l.Of + LaneSuffix, "lane": all})
	if err != nil {
		panic(err) // a share that is no number
	}
	return b
}

// lane reads what Definition wrote.
func (p *parser) lane(n *yaml.Node, path string) {
	l := &Lane{}
	p.def.Lane = l
	p.each(n, path, "a lane", yamlkeys.Keys{
		"of":      func(n *yaml.Node, path string) { l.Of = p.Text(n, path) },
		"rollout": func(n *yaml.Node, path string) { l.Rollout = p.Text(n, path) },
		"percent": func(n *yaml.Node, path string) {
			v, err := strconv.ParseFloat(n.Value, 64)
			if err != nil || !(v >= 0 && v <= 100) {
				p.Report(n, path, "", "a number from 0 to 100 is needed, not %s", yamlkeys.What(n))
			}
			l.Percent = v
		},
		"labels": func(n *yaml.Node, path string) {
			flat := p.Flat(n, path)
			if flat == nil {
				return
			}
			l.Labels = map[string]string{}
			for i := 0; i+1 < len(flat.Content); i += 2 {
				l.Labels[flat.Content[i].Value] = p.Text(yamlkeys.Follow(flat.Content[i+1]), path)
			}
		},
		"groups": func(n *yaml.Node, path string) {
			p.items(n, path, func(n *yaml.Node, path string, _ int) { l.Groups = append(l.Groups, p.Text(n, path)) })
		},
	})
}

// A lane is a Lane, ready to be asked.
type lane struct {
	Lane
	name   string
	labels *rule // nil: none
}

// lanes finds those of all groups, and what is wrong with them.
func (b *builder) lanes(r *Rules) {
	for i := range b.defs {
		d := &b.defs[i]
		if d.Lane == nil {
			continue
		}
		of, ok := b.at[d.Lane.Of]
		switch {
		case !ok || b.defs[of].Lane != nil:
			b.fail(d, findings.UnknownGroup, "lane", fmt.Sprintf("there is no group %q that it is a lane of", d.Lane.Of), "")
			continue
		case d.Name != d.Lane.Of+LaneSuffix:
			b.fail(d, findings.GroupName, "name", fmt.Sprintf("the lane of group %q is %q", d.Lane.Of, d.Lane.Of+LaneSuffix), "")
			continue
		case d.Match != nil || len(d.Include) > 0 || d.Alone:
			b.fail(d, findings.MisplacedKey, "lane", "a lane is got by nodes that get the group that it is of: it has no rule of its own, and includes none", "")
			continue
		}
		l := &lane{Lane: *d.Lane, name: d.Name}
		if len(l.Labels) > 0 {
			c := compiler{builder: b, def: d}
			l.labels = c.match(labelled(l.Labels))
		}
		r.groups[of].lane, r.lanes = l, true
	}
}

// labelled is the Match of all labels. "true" is also a bool, and "1" a number: who writes metadata may mean either.
func labelled(labels map[string]string) *Match {
	m := &Match{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text := labels[key]
		values := Values{text}
		if v, err := strconv.ParseBool(text); err == nil && (text == "true" || text == "false") {
			values = append(values, v)
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			values = append(values, v)
		}
		m.Metadata = append(m.Metadata, Entry{Path: []string{key}, Values: values})
	}
	return m
}

// picks reports whether a node that gets some groups is in the lane, and says why.
func (l *lane) picks(r *Rules, q *query, all []int) (why string, picked bool) {
	if l.labels != nil && l.labels.holds(q, nil) == yes {
		var b strings.Builder
		l.labels.say(&b, q)
		return b.String(), true
	}
	for _, at := range all {
		if name := r.groups[at].name; slices.Contains(l.Groups, name) {
			return "it gets group " + name, true
		}
	}
	if l.Percent >= 100 || q.node.ID != "" && share(l.Rollout, q.node.ID) < l.Percent {
		return "it is in the first " + strconv.FormatFloat(l.Percent, 'g', -1, 64) + " %", true
	}
	return "", false
}

// share says where a node stands among all, from 0 to 100, in a rollout.
func share(rollout, node string) float64 {
	sum := sha256.Sum256([]byte(rollout + "\x00" + node))
	return float64(binary.BigEndian.Uint64(sum[:])) / (1 << 63) * 50
}

// change gives the node lanes in the place of the groups that they are of.
func (r *Rules) change(q *query, all []int, d *Decision) {
	skip := len(d.Reasons) - len(d.Groups)
	for i := range d.Groups {
		l := r.groups[all[i]].lane
		if l == nil {
			continue
		}
		if why, picked := l.picks(r, q, all); picked {
			d.Groups[i] = l.name
			d.Reasons[skip+i] = Reason{Group: l.name, Rule: fmt.Sprintf("in the place of %s, by rollout %s: %s", l.Of, l.Rollout, why)}
		}
	}
}
