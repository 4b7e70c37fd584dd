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
	maxNesting    = 16     // matches in each other
	maxConditions = 10_000 // values and matches of a file
)

// Parse reads one group.yaml; file is what the problems call it. The definition is of use if
// there is no error among them.
func Parse(file string, data []byte) (Definition, []findings.Problem) {
	r, doc := yamlkeys.Open("group.yaml", file, data)
	p := parser{Reader: r, def: Definition{File: file, places: map[string]findings.Problem{}}, left: maxConditions}
	if doc != nil {
		p.group(doc)
	}
	return p.def, p.Problems
}

// A parser reads one file.
type parser struct {
	*yamlkeys.Reader
	def  Definition
	left int // conditions
}

// each reads a mapping.
func (p *parser) each(n *yaml.Node, path, of string, known yamlkeys.Keys) {
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

// items reads what stands in a list, or one that stands there without.
func (p *parser) items(n *yaml.Node, path string, take func(n *yaml.Node, path string, i int)) {
	yamlkeys.Items(n, path, func(n *yaml.Node, path string, i int) bool {
		take(n, path, i)
		return p.left >= 0
	})
}

func (p *parser) group(n *yaml.Node) {
	p.each(n, "", "group.yaml", yamlkeys.Keys{
		"name": func(n *yaml.Node, path string) {
			p.keep(n, path)
			if p.def.Name = p.Text(n, path); p.def.Name == "" && n.Tag == "!!str" {
				p.ReportAs(findings.GroupName, n, path, "", "a group needs a name")
			}
		},
		"match": func(n *yaml.Node, path string) {
			p.keep(n, path)
			m := p.match(n, path, 0)
			p.def.Match = &m
		},
		"include": func(n *yaml.Node, path string) {
			p.keep(n, path)
			p.items(n, path, func(n *yaml.Node, path string, i int) {
				p.keep(n, fmt.Sprintf("include[%d]", i))
				p.def.Include = append(p.def.Include, p.Text(n, path))
			})
		},
		"lane": func(n *yaml.Node, path string) {
			p.keep(n, path)
			p.lane(n, path)
		},
		"priority": func(n *yaml.Node, path string) {
			v, err := strconv.ParseInt(n.Value, 10, 32)
			if err != nil || n.Tag != "!!int" {
				p.Report(n, path, "", "a whole number of 32 bits is needed, not %s", yamlkeys.What(n))
			}
			p.def.Priority = int(v)
		},
		"on_error": func(n *yaml.Node, path string) {
			p.keep(n, path)
			switch word := p.Text(n, path); word {
			case "alone":
				p.def.Alone = true
			case "all", "":
			default:
				p.Report(n, path, "", "on_error is alone or all, not %s", yamlkeys.Quoted(word))
			}
		},
		"otherwise": func(n *yaml.Node, path string) {
			p.keep(n, path)
			if p.def.Otherwise = p.Text(n, path); p.def.Otherwise == "" && n.Tag == "!!str" {
				p.Report(n, path, "", `otherwise is "default", "refuse" or the name of a group`)
			}
		},
	})
}

// match reads a Match.
func (p *parser) match(n *yaml.Node, path string, depth int) Match {
	m := Match{place: p.place(n)}
	if depth > maxNesting {
		p.ReportAs(findings.NodeRule, n, path, "", "matches are nested more than %d deep", maxNesting)
		return m
	}
	if !p.count(n, path) {
		return m
	}
	values := func(to *Values) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) { *to = p.values(n, path, false) }
	}
	matches := func(to *[]Match) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			if n.Kind != yaml.SequenceNode {
				p.Report(n, path, "", "a list of matches is needed, not %s", yamlkeys.What(n))
				return
			}
			*to = make([]Match, 0, min(len(n.Content), maxConditions))
			p.items(n, path, func(n *yaml.Node, path string, _ int) { *to = append(*to, p.match(n, path, depth+1)) })
		}
	}
	p.each(n, path, "a match", yamlkeys.Keys{
		"id": values(&m.ID), "cluster": values(&m.Cluster),
		"user_agent_name": values(&m.UserAgentName), "user_agent_version": values(&m.UserAgentVersion),
		"locality": func(n *yaml.Node, path string) {
			p.each(n, path, "locality", yamlkeys.Keys{"region": values(&m.Region), "zone": values(&m.Zone), "sub_zone": values(&m.SubZone)})
		},
		"metadata": func(n *yaml.Node, path string) { p.metadata(n, path, nil, &m) },
		"all":      matches(&m.All), "any": matches(&m.Any),
		"not": func(n *yaml.Node, path string) {
			not := p.match(n, path, depth+1)
			m.Not = &not
		},
		"cel": func(n *yaml.Node, path string) {
			p.keep(n, path)
			m.cel = path
			if m.CEL = p.Text(n, path); m.CEL == "" && n.Tag == "!!str" {
				p.ReportAs(findings.NodeRule, n, path, "", "an expression is needed")
			}
		},
	})
	return m
}

// metadata reads what is asked of the metadata, below some keys of it.
func (p *parser) metadata(n *yaml.Node, path string, below []string, m *Match) {
	if len(below) >= nodemeta.MaxDepth {
		p.ReportAs(findings.NodeRule, n, path, "", "metadata is not looked at more than %d deep", nodemeta.MaxDepth)
		return
	}
	flat := p.Flat(n, path)
	if flat == nil || !p.count(n, path) {
		return
	}
	for i := 0; i+1 < len(flat.Content); i += 2 {
		key, value := flat.Content[i].Value, yamlkeys.Follow(flat.Content[i+1])
		at, keys := yamlkeys.Join(path, yamlkeys.Short(key)), append(slices.Clip(below), key)
		if value.Kind == yaml.MappingNode {
			p.metadata(value, at, keys, m)
		} else {
			m.Metadata = append(m.Metadata, Entry{Path: keys, Values: p.values(value, at, true)})
		}
	}
}

// values reads a value or a list of them.
func (p *parser) values(n *yaml.Node, path string, others bool) Values {
	values := Values{}
	p.items(n, path, func(n *yaml.Node, path string, _ int) {
		if !p.count(n, path) {
			return
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

// count counts a condition and reports whether it is one too many.
func (p *parser) count(n *yaml.Node, path string) bool {
	if p.left--; p.left == -1 {
		p.ReportAs(findings.NodeRule, n, path, "", "more than %d values and matches in one file", maxConditions)
	}
	return p.left >= 0
}

// keep remembers where a key stands, and what may be quoted of it, for what is found later.
func (p *parser) keep(n *yaml.Node, key string) {
	d := protoyaml.Decoder{File: p.File, Source: p.Source}
	d.Report(n, key, "", "")
	p.def.places[key] = d.Problems[0]
}

func (p *parser) place(n *yaml.Node) Place {
	return Place{File: p.File, Pos: findings.Pos{Line: n.Line, Column: n.Column}}
}
