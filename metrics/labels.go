package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

// MaxGroups is how many groups have their own series. These are the first groups that were seen.
// The number of groups may be unlimited, because clients may choose the names of groups.
const MaxGroups = 100

// other is the label of values without a label of their own.
const other = "other"

// rows are the table of types, by rank.
var rows = xds.Types()

// labels are the labels of types: those of rows, and other.
var labels = func() []string {
	all := make([]string, 0, len(rows)+1)
	for _, t := range rows {
		all = append(all, strings.ToLower(t.Short))
	}
	return append(all, other)
}()

// index is the position of a type in labels.
func index(t *xds.Type) int {
	if i := t.Rank(); i < len(rows) && rows[i] == t {
		return i
	}
	if i := slices.IndexFunc(rows, t.Is); i >= 0 {
		return i
	}
	return len(rows)
}

// groups are the groups that have a label of their own.
type groups struct {
	mu    sync.Mutex
	known map[string]bool
}

func newGroups() *groups { return &groups{known: map[string]bool{}} }

// all returns all labels.
func (g *groups) all() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.known))
}

// label returns the label of a group. It does not keep the memory of name.
func (g *groups) label(name string) string {
	name = strings.Clone(strings.ToValidUTF8(name, "\uFFFD"))
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.known[name] {
		if len(g.known) >= MaxGroups {
			return other
		}
		g.known[name] = true
	}
	return name
}
