package protocol

import (
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// What a client may have been told of a name besides a resource.
var (
	absent = &xds.Stamp{}          // that it does not exist; or nothing yet
	unsure = &xds.Stamp{Name: "?"} // something that it may have applied or not
	others = &xds.Stamp{Name: "@"} // resources that the name finds, by their own names
)

// real reports whether a stamp is that of a resource the server knows.
func real(s *xds.Stamp) bool { return s.Sum != xds.Sum{} }

// same reports whether two stamps say the same of a name.
func same(a, b *xds.Stamp) bool { return a == b || real(a) && a.Sum == b.Sum }

// An entry is what the session knows of one name, where that is more than the
// wildcard's base says: a subscription by name, or an exception to base.
type entry struct {
	name  string
	told  *xds.Stamp // what the client was last told; never nil
	named bool       // explicitly subscribed
	sent  bool       // something was told of it, on this stream or an earlier one
	again bool       // tell it again, changed or not
	dirty bool       // told may differ from the view; the name is listed in subscription.dirty
	gone  bool       // the view has lost it for good: it does not linger, or no more
}

// held is what a client was told of one type: for a wildcard, the table it was
// last brought up to; for single names, an entry each. It counts a response as
// received when it leaves, for a stream loses nothing: only a NACK says
// otherwise (see group).
type held struct {
	base    *xds.Versions // told by way of the wildcard
	entries []entry       // by name; an entry overrides base
}

func (h *held) find(name string) (int, bool) {
	return slices.BinarySearchFunc(h.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
}

func (h *held) entry(name string) *entry {
	if i, ok := h.find(name); ok {
		return &h.entries[i]
	}
	return nil
}

// told returns what the client was last told of a name.
func (h *held) told(name string) *xds.Stamp {
	if e := h.entry(name); e != nil {
		return e.told
	}
	if s := h.base.Get(name); s != nil {
		return s
	}
	return absent
}

// insert adds entries whose names have none; extra need not be sorted.
func (h *held) insert(extra []entry) {
	switch len(extra) {
	case 0:
		return
	case 1:
		i, _ := h.find(extra[0].name)
		h.entries = slices.Insert(h.entries, i, extra[0])
		return
	}
	slices.SortFunc(extra, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	merged := make([]entry, 0, len(h.entries)+len(extra))
	old := h.entries
	for len(old) > 0 && len(extra) > 0 {
		if old[0].name < extra[0].name {
			merged, old = append(merged, old[0]), old[1:]
		} else {
			merged, extra = append(merged, extra[0]), extra[1:]
		}
	}
	h.entries = append(append(merged, old...), extra...)
}
