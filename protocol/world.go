package protocol

import (
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A World lists the resources of a type that a SotW client may hold once it accepts a response. On
// a later stream the client states the version of that response, and the server finds the World
// with this version. A World is immutable.
type World struct {
	Versions *xds.Versions // the table of the response; the client holds the resources in it that it subscribes to

	// Lacks are names in Versions that waited: the client did not get these resources, or not in
	// the state of Versions. Sorted.
	Lacks []string

	// Others are states that the client may hold in addition to Versions, or instead: kept
	// resources, states from before a refusal, and resources that SotW cannot remove. For
	// full-state types they include resources on demand. The stamps are sorted by name. Several
	// stamps of one name are newest first, if the order is known. A stamp without a sum means that
	// the state of its name is unknown, from an earlier stream. A stamp without a name means that
	// the client may hold any name in an unknown state.
	Others []*xds.Stamp

	// Since is true if the server sent a later state, which the client has not accepted and may
	// have applied in part. The World then includes that state, too.
	Since bool
}

func stampByName(a, b *xds.Stamp) int { return strings.Compare(a.Name, b.Name) }

// place returns the index of the first stamp with a name in a sorted list, and true. If there is no
// such stamp, it returns the index where the stamp would be inserted, and false.
func place(list []*xds.Stamp, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(st *xds.Stamp, name string) int { return strings.Compare(st.Name, name) })
}

// except returns the stamps of list whose names are not in names. The list is sorted by name,
// without duplicates, and stays unchanged; names is sorted in place. If no name is found, the
// function copies nothing.
func except(list []*xds.Stamp, names []string) []*xds.Stamp {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(names)
	var gone []int
	for _, n := range slices.Compact(names) {
		if i, ok := place(list, n); ok {
			gone = append(gone, i)
		}
	}
	switch len(gone) {
	case 0:
		return list
	case len(list):
		return nil
	}
	left, from := make([]*xds.Stamp, 0, len(list)-len(gone)), 0
	for _, i := range gone {
		left, from = append(left, list[from:i]...), i+1
	}
	return append(left, list[from:]...)
}

// merged returns the stamps of few and many as one sorted list. Both arguments are sorted and stay
// unchanged. For equal names, the stamps of few come first.
func merged(few, many []*xds.Stamp) []*xds.Stamp {
	if len(few) == 0 {
		return many
	}
	all := make([]*xds.Stamp, 0, len(few)+len(many))
	for _, st := range few {
		i, _ := place(many, st.Name)
		all = append(append(all, many[:i]...), st)
		many = many[i:]
	}
	return append(all, many...)
}

// has returns a state of a name that the client may hold; if there are several, the first.
func (w *World) has(name string) *xds.Stamp {
	if st := w.listed(name); st != nil {
		return st
	}
	i, _ := place(w.Others, name)
	for ; i < len(w.Others) && w.Others[i].Name == name; i++ {
		if known(w.Others[i]) {
			return w.Others[i]
		}
	}
	return absent
}

// listed returns the state of a name in Versions, or nil if the response lacked it.
func (w *World) listed(name string) *xds.Stamp {
	if _, lacks := slices.BinarySearch(w.Lacks, name); lacks {
		return nil
	}
	return w.Versions.Get(name)
}
