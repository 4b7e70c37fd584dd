package explain

import (
	"cmp"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy/nodes"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// maxPreview is the maximum number of resources in an answer.
const maxPreview = 1000

// Preview returns the groups and the resources that a node would get. The text is the node as JSON or YAML. The
// error is about the text.
func (e *Explainer) Preview(text []byte) (api.Preview, error) {
	n, err := nodes.Read(text, e.d.Source.Types())
	if err != nil {
		return api.Preview{}, err
	}
	place := func(group string, t *xds.Type, name string) string { return e.placeIn([]string{group}, t, name) }
	return PreviewOf(e.d.Source.Decide(n), e.d.Snapshot(), maxPreview, place), nil
}

// PreviewOf returns the groups of a decision, and at most so many of their resources (0: all). The function place
// returns the place of a resource of a group.
func PreviewOf(d groups.Decision, all *store.Snapshot, most int, place func(group string, t *xds.Type, name string) string) api.Preview {
	p := api.Preview{Refused: d.Groups == nil, Groups: []api.PreviewGroup{}, Notes: d.Notes, Resources: []api.PreviewResource{}}
	for _, r := range d.Reasons {
		if r.Group == "" {
			p.Otherwise = r.String()
			continue
		}
		g := api.PreviewGroup{Name: r.Group, Why: r.Rule}
		switch {
		case r.By != "":
			g.Why = "included by " + r.By
		case r.Rule == "":
			g.Why = "otherwise"
		}
		if r.Place != (groups.Place{}) {
			g.Place = r.Place.String()
		}
		p.Groups = append(p.Groups, g)
	}
	if p.Refused {
		return p
	}
	tables := slices.DeleteFunc(slices.Collect(maps.Values(all.View(d.Groups...))), func(t *xds.Table) bool { return t.Type() == nil })
	slices.SortFunc(tables, func(a, b *xds.Table) int {
		return cmp.Or(cmp.Compare(a.Type().Rank(), b.Type().Rank()), cmp.Compare(a.Type().URL, b.Type().URL))
	})
	for _, table := range tables {
		t := table.Type()
		for _, r := range slices.SortedFunc(table.All(), func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) }) {
			p.Total++
			if most > 0 && p.Total > most {
				continue
			}
			in := slices.DeleteFunc(slices.Clone(d.Groups), func(g string) bool { return all.View(g).Table(t).Lookup(r.Name) == nil })
			p.Resources = append(p.Resources, api.PreviewResource{
				Type: t.String(), Name: r.Name, Group: in[0], Hides: in[1:],
				Version: r.Version, Bytes: len(r.Body), Place: place(in[0], t, r.Name),
			})
		}
	}
	return p
}
