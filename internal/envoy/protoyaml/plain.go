package protoyaml

import "go.yaml.in/yaml/v4"

// Plain returns a deep copy of a node without aliases, anchors and merge keys. It reports their
// mistakes.
func (d *Decoder) Plain(n *yaml.Node) *yaml.Node { return d.plain(n, "", 0) }

func (d *Decoder) plain(n *yaml.Node, path string, depth int) *yaml.Node {
	from := d.resolve(n, path)
	own := *from
	own.Anchor, own.Alias, own.Content = "", nil, nil
	if n != from { // comments belong to the alias, not to its target
		own.HeadComment, own.LineComment, own.FootComment = n.HeadComment, n.LineComment, n.FootComment
	}
	if !d.enter(from, path, depth) {
		return &own
	}
	if from.Kind == yaml.MappingNode {
		for _, p := range d.pairs(from, path, depth) {
			key := *p.key
			key.Anchor = ""
			own.Content = append(own.Content, &key, d.plain(p.value, path, depth+1))
		}
		return &own
	}
	for _, c := range from.Content {
		own.Content = append(own.Content, d.plain(c, path, depth+1))
	}
	return &own
}
