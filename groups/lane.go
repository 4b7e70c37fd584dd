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

// LaneSuffix is the end of the name of each lane. No other group's name may end with it.
const LaneSuffix = "@next"

// A Lane is a copy of a group with the resources of a rollout. During the rollout some nodes of the
// group get the lane instead. A node is picked if one of the conditions below holds. The result depends
// only on the node and the lane, so all servers agree. A rollout writes the lane.
type Lane struct {
	Of      string  // the name of the group
	Rollout string  // the ID of the rollout; it selects which nodes are in the first percent
	Percent float64 // share of the nodes, by the hash of their id; 100: all nodes, also nodes without an id
	Labels  map[string]string
	Groups  []string // nodes that also get one of these groups
}

// BaseOf returns the group of a lane, or the group itself if it is not a lane.
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
		panic(err) // Percent is infinite
	}
	return b
}

// readLane reads the lane in the output of Definition.
func (p *parser) readLane(n *yaml.Node, path string) {
	l := &Lane{}
	p.def.Lane = l
	p.mapping(n, path, "a lane", yamlkeys.Keys{
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
			for entry := range slices.Chunk(flat.Content, 2) { // key, value
				l.Labels[entry[0].Value] = p.Text(yamlkeys.Follow(entry[1]), path)
			}
		},
		"groups": func(n *yaml.Node, path string) {
			p.items(n, path, func(n *yaml.Node, path string, _ int) { l.Groups = append(l.Groups, p.Text(n, path)) })
		},
	})
}

// A lane is a compiled Lane.
type lane struct {
	Lane
	name   string
	labels *rule // nil: no labels
}

// compileLanes compiles the lanes of all groups, and reports their errors.
func (b *builder) compileLanes(r *Rules) {
	for i := range b.defs {
		d := &b.defs[i]
		if d.Lane == nil {
			continue
		}
		of, ok := b.byName[d.Lane.Of]
		switch {
		case !ok || b.defs[of].Lane != nil:
			b.fail(d, findings.UnknownGroup, "lane", fmt.Sprintf("there is no group %q for this lane", d.Lane.Of), "")
		case d.Name != d.Lane.Of+LaneSuffix:
			b.fail(d, findings.GroupName, "name", fmt.Sprintf("the lane of group %q is %q", d.Lane.Of, d.Lane.Of+LaneSuffix), "")
		case d.Match != nil || len(d.Include) > 0 || d.Alone:
			b.fail(d, findings.MisplacedKey, "lane", "a lane has neither match, include nor on_error: it replaces its group for some nodes", "")
		default:
			l := &lane{Lane: *d.Lane, name: d.Name}
			if len(l.Labels) > 0 {
				c := compiler{builder: b, def: d}
				l.labels = c.compileMatch(labelsMatch(l.Labels))
			}
			r.groups[of].lane = l
		}
	}
}

// labelsMatch returns the Match of all labels. The text "true" also matches a bool, and "1" a number,
// because the writer of the metadata may use either.
func labelsMatch(labels map[string]string) *Match {
	m := &Match{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text := labels[key]
		values := Values{text}
		if text == "true" || text == "false" {
			values = append(values, text == "true")
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			values = append(values, v)
		}
		m.Metadata = append(m.Metadata, MetadataMatch{Path: []string{key}, Values: values})
	}
	return m
}

// picks reports whether a node with these groups is in the lane, with the reason.
func (l *lane) picks(r *Rules, q *query, all []int) (why string, picked bool) {
	if l.labels != nil && l.labels.holds(q, nil) == yes {
		var b strings.Builder
		l.labels.describe(&b, q)
		return b.String(), true
	}
	for _, at := range all {
		if name := r.groups[at].name; slices.Contains(l.Groups, name) {
			return "it gets group " + name, true
		}
	}
	if l.Percent >= 100 || q.node.ID != "" && hashPercent(l.Rollout, q.node.ID) < l.Percent {
		return fmt.Sprintf("it is in the first %v %%", l.Percent), true
	}
	return "", false
}

// hashPercent returns the position of a node among all nodes of a rollout, from 0 to 100.
func hashPercent(rollout, node string) float64 {
	sum := sha256.Sum256([]byte(rollout + "\x00" + node))
	return float64(binary.BigEndian.Uint64(sum[:])) / (1 << 63) * 50
}

// replaceByLanes replaces groups by their lanes, for a node that is in them.
func (r *Rules) replaceByLanes(q *query, all []int, d *Decision) {
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
