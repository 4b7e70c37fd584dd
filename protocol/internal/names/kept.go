package names

import "github.com/chancery-xds/chancery/xds"

// A Kept is a resource that the view has lost and that stays on the client, because a resource there
// may refer to it (ADS-3). The room order decides how long. The rooms below it read that the name is
// kept.
type Kept struct {
	Stamp    *xds.Stamp    // the state that the client was told; Absent: it does not hold the resource, but needs it to warm another one
	Body     *xds.Resource // the resource that is still sent; nil: no longer known
	Released bool          // nothing refers to the resource any more: its removal is sent
}

// Keep records that the resource of a name is kept.
func (l *Set) Keep(name string, k *Kept) {
	if l.kept == nil {
		l.kept = map[string]*Kept{}
	}
	l.kept[name] = k
}

// KeepNot records that the resource of a name is not kept any more.
func (l *Set) KeepNot(name string) { delete(l.kept, name) }

// Kept returns the kept resource of a name, or nil. The resource may be released.
func (l *Set) Kept(name string) *Kept { return l.kept[name] }

// Lingers returns the kept resource of a name. It returns nil if no such resource is kept, or if the
// resource is released.
func (l *Set) Lingers(name string) *Kept {
	if k := l.kept[name]; k != nil && !k.Released {
		return k
	}
	return nil
}

// AllKept yields the names of all kept resources.
func (l *Set) AllKept(yield func(string) bool) {
	for name := range l.kept {
		if !yield(name) {
			return
		}
	}
}

// Match records that a subscribed name matches a resource. If the resource is kept, it may be in the
// view again: see TakeMatched.
func (l *Set) Match(name string) {
	if l.kept[name] != nil {
		l.matched = append(l.matched, name)
	}
}

// TakeMatched returns the kept names that were matched, and clears this list.
func (l *Set) TakeMatched() (names []string) {
	names, l.matched = l.matched, nil
	return names
}
