package protoyaml

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// A pair is a key of a mapping and its value.
type pair struct{ key, value *yaml.Node }

// pairs returns the keys and values of a mapping. It reports duplicate keys and follows merge keys.
func (d *Decoder) pairs(n *yaml.Node, path string, depth int) []pair {
	d.visited += len(n.Content) / 2 // merge keys visit the same pairs again
	all := pairSet{pairs: make([]pair, 0, len(n.Content)/2)}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := d.resolve(n.Content[i], path), n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			hint := ""
			if k.Kind == yaml.MappingNode && k.Style&yaml.FlowStyle != 0 {
				hint = TemplateHint
			}
			d.Report(k, path, hint, "a key must be a word")
			continue
		}
		if isNull(k) && k.Value != "null" {
			d.notPortable(findings.EnvoyOnly, k, path, `write "null" in quotes: readers other than Envoy's need that`, `a null key, which Envoy's own reader reads as the text "null"`, func() {})
			null := *k
			null.Tag, null.Style, null.Value = "!!str", yaml.DoubleQuotedStyle, "null"
			k = &null
		}
		if i := n.Content[i]; i.Kind == yaml.AliasNode && d.colonFollows(i) {
			d.notPortable(findings.Portability, i, path, "write a space before the colon: for Envoy's own reader the colon is part of the alias", "an alias as a key", func() {})
		}
		if k.Tag == "!!merge" {
			if !d.merges[k] {
				if d.merges == nil {
					d.merges = map[*yaml.Node]bool{}
				}
				d.merges[k] = true
				d.notPortable(findings.Portability, k, path, "Envoy's own reader refuses merge keys", "merge key", func() {}) // [Decoder.Plain] replaces it
			}
			merges = append(merges, v)
			continue
		}
		if first := all.add(pair{k, v}); first != nil {
			d.ReportAs(findings.DuplicateKey, k, path, "", "duplicate key %s, first on line %d", d.quoted(k.Value), first.Line)
		}
	}
	for _, m := range merges {
		for _, p := range d.merged(m, path, depth+1) {
			all.add(p)
		}
	}
	return all.pairs
}

// colonFollows reports whether a colon follows an alias without a space before it.
func (d *Decoder) colonFollows(alias *yaml.Node) bool {
	line := []rune(sourceLine(d.Source, alias.Line))
	_, behind, _ := strings.Cut(string(line[min(alias.Column, len(line)):]), alias.Value)
	return strings.HasPrefix(behind, ":")
}

// pairSet holds the pairs of a mapping, each key once. It searches small mappings linearly.
type pairSet struct {
	pairs []pair
	many  map[string]*yaml.Node // the index of a large mapping; nil: small
}

// add adds a pair. If the key exists, it returns the earlier key instead.
func (s *pairSet) add(p pair) (first *yaml.Node) {
	if s.many == nil {
		for _, other := range s.pairs {
			if other.key.Value == p.key.Value {
				return other.key
			}
		}
		if len(s.pairs) == 32 {
			s.many = make(map[string]*yaml.Node, 64)
			for _, p := range s.pairs {
				s.many[p.key.Value] = p.key
			}
		}
	} else if first := s.many[p.key.Value]; first != nil {
		return first
	}
	if s.many != nil {
		s.many[p.key.Value] = p.key
	}
	s.pairs = append(s.pairs, p)
	return nil
}

// merged returns the pairs of a merge key's value: a mapping, or a list of mappings in which the
// earlier one wins.
func (d *Decoder) merged(n *yaml.Node, path string, depth int) (out []pair) {
	n = d.resolve(n, path)
	if !d.enter(n, path, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.pairs(n, path, depth)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			out = append(out, d.merged(c, path, depth+1)...)
		}
		return out
	}
	d.wrongShape(n, path, "a merge key needs a mapping")
	return nil
}
