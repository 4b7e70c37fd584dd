package groups

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

const (
	maxNesting    = 16     // depth of nested matches
	maxConditions = 10_000 // values and matches in a file
)

// Parse reads one group.yaml. Problems begin with file. The definition is usable if no problem is an
// error.
func Parse(file string, data []byte) (Definition, []findings.Problem) {
	r, doc := yamlkeys.Open("group.yaml", file, data)
	p := parser{Reader: r, def: Definition{File: file, places: map[string]findings.Problem{}}, conditionsLeft: maxConditions}
	if doc != nil {
		p.readGroup(doc)
	}
	return p.def, p.Problems
}

// A parser reads one group.yaml.
type parser struct {
	*yamlkeys.Reader
	def            Definition
	conditionsLeft int // of maxConditions
}

// mapping reads a mapping.
func (p *parser) mapping(n *yaml.Node, path, of string, known yamlkeys.Keys) {
	p.Each(findings.UnknownKey, n, path, of, known, func(key string) string {
		if known["locality"] != nil && slices.Contains([]string{"region", "zone", "sub_zone"}, key) {
			return "it belongs below locality"
		}
		if known["match"] != nil && slices.Contains([]string{"id", "cluster", "locality", "metadata", "user_agent_name", "user_agent_version", "any", "all", "not", "cel"}, key) {
			return "it belongs below match"
		}
		return ""
	})
}

// items reads a list, or a single value as a list of one.
func (p *parser) items(n *yaml.Node, path string, take func(n *yaml.Node, path string, i int)) {
	yamlkeys.Items(n, path, func(n *yaml.Node, path string, i int) bool {
		take(n, path, i)
		return p.conditionsLeft >= 0
	})
}

func (p *parser) readGroup(n *yaml.Node) {
	p.mapping(n, "", "group.yaml", yamlkeys.Keys{
		"name": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			p.def.Name = p.Text(n, path)
			if p.def.Name == "" && n.Tag == "!!str" {
				p.ReportAs(findings.GroupName, n, path, "", "a group needs a name")
			}
		},
		"match": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			m := p.readMatch(n, path, 0)
			p.def.Match = &m
		},
		"include": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			p.items(n, path, func(n *yaml.Node, path string, i int) {
				p.recordPlace(n, fmt.Sprintf("include[%d]", i))
				p.def.Include = append(p.def.Include, p.Text(n, path))
			})
		},
		"lane": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			p.readLane(n, path)
		},
		"priority": func(n *yaml.Node, path string) {
			v, err := strconv.ParseInt(n.Value, 10, 32)
			if err != nil || n.Tag != "!!int" {
				p.Report(n, path, "", "a whole number of 32 bits is needed, not %s", yamlkeys.What(n))
			}
			p.def.Priority = int(v)
		},
		"on_error": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			switch word := p.Text(n, path); word {
			case "alone":
				p.def.Alone = true
			case "all", "":
			default:
				p.Report(n, path, "", "on_error is alone or all, not %s", yamlkeys.Quoted(word))
			}
		},
		"otherwise": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			p.def.Otherwise = p.Text(n, path)
			if p.def.Otherwise == "" && n.Tag == "!!str" {
				p.Report(n, path, "", `otherwise is "default", "refuse" or the name of a group`)
			}
		},
	})
}

// readMatch reads a Match.
func (p *parser) readMatch(n *yaml.Node, path string, depth int) Match {
	m := Match{place: p.place(n)}
	if depth > maxNesting {
		p.ReportAs(findings.NodeRule, n, path, "", "matches are nested deeper than %d", maxNesting)
	} else if p.countCondition(n, path) {
		p.readConditions(n, path, depth, &m)
	}
	return m
}

// readConditions reads the keys of a Match.
func (p *parser) readConditions(n *yaml.Node, path string, depth int, m *Match) {
	values := func(to *Values) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) { *to = p.readValues(n, path, false) }
	}
	matches := func(to *[]Match) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			if n.Kind != yaml.SequenceNode {
				p.Report(n, path, "", "a list of matches is needed, not %s", yamlkeys.What(n))
				return
			}
			*to = make([]Match, 0, min(len(n.Content), maxConditions))
			p.items(n, path, func(n *yaml.Node, path string, _ int) { *to = append(*to, p.readMatch(n, path, depth+1)) })
		}
	}
	p.mapping(n, path, "a match", yamlkeys.Keys{
		"id": values(&m.ID), "cluster": values(&m.Cluster),
		"user_agent_name": values(&m.UserAgentName), "user_agent_version": values(&m.UserAgentVersion),
		"locality": func(n *yaml.Node, path string) {
			p.mapping(n, path, "locality", yamlkeys.Keys{"region": values(&m.Region), "zone": values(&m.Zone), "sub_zone": values(&m.SubZone)})
		},
		"metadata": func(n *yaml.Node, path string) { p.readMetadata(n, path, nil, m) },
		"all":      matches(&m.All), "any": matches(&m.Any),
		"not": func(n *yaml.Node, path string) {
			not := p.readMatch(n, path, depth+1)
			m.Not = &not
		},
		"cel": func(n *yaml.Node, path string) {
			p.recordPlace(n, path)
			m.cel = path
			m.CEL = p.Text(n, path)
			if m.CEL == "" && n.Tag == "!!str" {
				p.ReportAs(findings.NodeRule, n, path, "", "an expression is needed")
			}
		},
	})
}

// readMetadata reads the conditions for the metadata below some keys.
func (p *parser) readMetadata(n *yaml.Node, path string, below []string, m *Match) {
	if len(below) >= nodemeta.MaxDepth {
		p.ReportAs(findings.NodeRule, n, path, "", "conditions for metadata are limited to a depth of %d keys", nodemeta.MaxDepth)
		return
	}
	flat := p.Flat(n, path)
	if flat == nil || !p.countCondition(n, path) {
		return
	}
	for entry := range slices.Chunk(flat.Content, 2) {
		key, value := entry[0].Value, yamlkeys.Follow(entry[1])
		at, keys := yamlkeys.Join(path, yamlkeys.Short(key)), append(slices.Clip(below), key)
		if value.Kind == yaml.MappingNode {
			p.readMetadata(value, at, keys, m)
		} else {
			m.Metadata = append(m.Metadata, MetadataMatch{Path: keys, Values: p.readValues(value, at, true)})
		}
	}
}

// readValues reads a value or a list of values.
func (p *parser) readValues(n *yaml.Node, path string, others bool) Values {
	values := Values{}
	p.items(n, path, func(n *yaml.Node, path string, _ int) {
		if !p.countCondition(n, path) {
			return
		}
		if others { // metadata, which Envoy may have read from a file
			p.Portable(n, path)
		}
		v, hint := yamlkeys.Scalar(n)
		if _, text := v.(string); v == nil || !text && !others {
			p.Report(n, path, hint, "a string is needed, not %s", yamlkeys.What(n))
			return
		}
		if _, err := compileValue(v, others); err != nil {
			p.ReportAs(findings.NodeRule, n, path, "", "%s", err)
			return
		}
		values = append(values, v)
	})
	return values
}

// countCondition counts a condition. It reports whether there are not too many.
func (p *parser) countCondition(n *yaml.Node, path string) bool {
	p.conditionsLeft--
	if p.conditionsLeft == -1 {
		p.ReportAs(findings.NodeRule, n, path, "", "more than %d values and matches in one file", maxConditions)
	}
	return p.conditionsLeft >= 0
}

// recordPlace records the position and excerpt of a key, for problems that are found later.
func (p *parser) recordPlace(n *yaml.Node, key string) {
	d := protoyaml.Decoder{File: p.File, Source: p.Source}
	d.Report(n, key, "", "")
	p.def.places[key] = d.Problems[0]
}

func (p *parser) place(n *yaml.Node) Place {
	return Place{File: p.File, Pos: findings.Pos{Line: n.Line, Column: n.Column}}
}
