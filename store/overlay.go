package store

import (
	"context"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// overlayPrefix is the prefix of the names of overlays. Group names that a person writes do not contain this byte.
const overlayPrefix = "\x00"

// OverlayOf returns the name of the overlay of a group in a store with [WithOverlays].
func OverlayOf(group string) string { return overlayPrefix + group }

// UnderlayOf returns the name of the underlay of a group ([Store.WatchWithUnderlay]).
func UnderlayOf(group string) string { return overlayPrefix + overlayPrefix + group }

// IsOverlay reports whether a group name is the name of an overlay or underlay.
func IsOverlay(name string) bool { return strings.HasPrefix(name, overlayPrefix) }

// WithOverlays gives each group an overlay: a second group, named by [OverlayOf], whose resources
// hide the group's resources with the same names. An overlay is for a second writer that changes a
// few resources often, such as endpoints, while another writer owns the group. An overlay is empty
// until something is written to it. Nodes do not see it before the content of their groups is
// known.
//
// Selectors do not return overlays, and [Watch.Groups] and [Snapshot.Groups] do not list them.
func WithOverlays() Option {
	return func(st *Store) { st.overlays = true }
}

// WithOverlayOf lets several groups share an overlay, such as a group and its copy for a rollout. A
// group gets the overlay of the group that the function returns. By default each group has its own
// overlay. The function must always return the same result for the same group.
func WithOverlayOf(of func(group string) string) Option {
	return func(st *Store) { st.overlayGroup = of }
}

// WatchWithUnderlay does the same as [Store.Watch], with the underlays of the node's groups below all these groups.
// The underlay of a group is a second group, named by [UnderlayOf], for resources that another writer adds, such as
// package lazy. The resources of the node's groups hide those of underlays with the same names. Writes to a group,
// such as [Tx.Clear], do not change its underlay. Nodes do not see it before the content of their groups is known.
func (st *Store) WatchWithUnderlay(ctx context.Context, node *xds.Node) (*Watch, error) {
	return st.watch(ctx, node, true)
}

// layersOf returns the layers that a watch of the groups sees: each group after its overlay, and then the
// underlays if the watch sees them.
func (st *Store) layersOf(names []string, underlays bool) []string {
	all := make([]string, 0, 2*len(names))
	for _, name := range names {
		if st.overlays {
			all = append(all, overlayFor(st.overlayGroup, name))
		}
		all = append(all, name)
	}
	if underlays {
		for _, name := range names {
			all = append(all, UnderlayOf(name))
		}
	}
	return all
}

// overlayFor returns the name of the overlay of a group.
func overlayFor(of func(string) string, name string) string {
	if of != nil {
		name = of(name)
	}
	return OverlayOf(name)
}
