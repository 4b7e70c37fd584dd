package dir

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// groups reads the names of the groups of a resource. Whether the groups exist is checked when all
// files are read.
func (d *decoder) groups(n *yaml.Node, path string, in *groupNames) *groupNames {
	items := []*yaml.Node{n}
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		d.Report(n, path, "leave the key out if it is in the group of its directory", "a list of groups without a name")
		return in
	case n.Kind == yaml.SequenceNode:
		items = n.Content
	}
	for i, item := range items {
		at := path
		if n.Kind == yaml.SequenceNode {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		for item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" || item.Value == "" {
			d.Report(item, at, "", "the name of a group is needed")
			continue
		}
		keep := protoyaml.Decoder{File: d.File, Source: d.Source}
		keep.Report(item, at, "", "")
		in.names, in.at = append(in.names, item.Value), append(in.at, keep.Problems[0])
	}
	return in
}
