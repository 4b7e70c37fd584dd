package dir

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
)

// A directory that loses many files may be temporarily incomplete: an unmounted volume, half a
// checkout, an editor between two steps. So new resources are served at once, but large removals are
// delayed or refused.
const (
	// minGuarded is the number of resources from which a type's removals are delayed or refused.
	minGuarded = 20

	// peakTime is how long the highest count of a type is remembered.
	peakTime = 10 * time.Minute

	// maxDelays limits the delay of a removal, as a multiple of the usual delay (Options.Confirm).
	// Files that are rewritten again and again do not delay a removal for ever.
	maxDelays = 12
)

// removals are the delayed removals of a group, and its recent counts. The zero value has neither.
type removals struct {
	confirm   time.Duration                 // the usual delay of a large removal
	peaks     map[string][]peak             // by type URL; falling counts, the newest last
	absent    map[string]map[string]absence // by type URL and name: resources that the last look did not find
	held      int                           // number of delayed removals: missing from the files, still served
	newlyHeld int                           // how many of these joined since the last log line
	again     time.Time                     // when to look again at the delayed removals
}

// An absence has the times since which a name is missing: first is the first look without the name,
// and since begins again when another name comes back.
type absence struct{ first, since time.Time }

// removableAt returns when the name may be removed, if the removal is large.
func (a absence) removableAt(confirm time.Duration) time.Time {
	last, usual := a.first.Add(maxDelays*confirm), a.since.Add(confirm)
	if usual.After(last) {
		return last
	}
	return usual
}

// A peak is the number of resources of a type that the files had until a time.
type peak struct {
	n     int
	until time.Time
}

// refusal returns the error of a load that would remove too much, with the hint how to allow it.
func refusal(what, how string) error {
	if how == "" {
		return errors.New(what)
	}
	return fmt.Errorf("%s: if you want that, %s", what, how)
}

// A loss has the resources that a type loses. A delayed removal counts only in names. So several small
// changes do not add up to a large one while the first are still served.
type loss struct {
	before *typeContent // the content before
	names  []string
	fresh  []string // those of names that the last look still found
	had    int      // number of resources in the files at the last look
	left   int      // number of resources in the files now
	top    int      // highest recent number
}

// losses returns what each type loses, by type URL.
func (m *removals) losses(now time.Time, was, next groupContent) map[string]loss {
	all := map[string]loss{}
	for url, c := range was.types {
		left := next.types[url]
		l := loss{before: c, names: c.gone(left), left: c.size(left)}
		for name := range c.at {
			if _, held := m.absent[url][name]; !held {
				l.had++
			}
		}
		for _, name := range l.names {
			if _, held := m.absent[url][name]; !held {
				l.fresh = append(l.fresh, name)
			}
		}
		l.top = m.top(now, url, l.had)
		all[url] = l
	}
	return all
}

// refuse returns the reason if next may be incomplete: a type would lose more than half of its
// resources, at once or in steps. At the start, files without any resource count as missing files,
// because this program did not see them become empty.
func (m *removals) refuse(lost map[string]loss, was, next groupContent, starting bool) (why string) {
	switch {
	case len(was.types) == 0:
	case next.files == 0:
		return "the directory has no files any more"
	case starting && len(next.types) == 0:
		return "no file has a resource any more"
	}
	var all []string
	for _, l := range lost {
		switch {
		case l.had >= minGuarded && 2*len(l.fresh) > l.had:
			all = append(all, fmt.Sprintf("remove %d of %d %s resources, such as %q", len(l.fresh), l.had, l.before.typ, first(l.fresh)))
		case len(l.fresh) > 0 && l.top >= minGuarded && 2*l.left < l.top:
			all = append(all, fmt.Sprintf("leave only %d of the %d %s resources of the last %d minutes", l.left, l.top, l.before.typ, int(peakTime.Minutes())))
		}
	}
	if all == nil {
		return ""
	}
	slices.Sort(all)
	return "this would " + strings.Join(all, " and ")
}

// first returns the first few names, which are enough to identify the file.
func first(names []string) []string {
	slices.Sort(names)
	return names[:min(3, len(names))]
}

// hold delays removals if a type loses more than a tenth: it keeps the resources in next until they
// were missing long enough. It delays all removals together, so that no remaining resource refers to a
// removed one. If a name comes back meanwhile, the files are being written, and the delay of the other
// names begins again.
func (m *removals) hold(now time.Time, lost map[string]loss, next groupContent) {
	absent := map[string]map[string]absence{}
	many, back := false, false
	for url, l := range lost {
		many = many || l.top >= minGuarded && len(l.names) > 0 && (10*len(l.names) > l.had || 10*(l.top-l.left) > l.top)
		gone := map[string]absence{}
		for _, name := range l.names {
			gone[name] = absence{now, now}
			if a, was := m.absent[url][name]; was {
				gone[name] = a
			}
		}
		for name := range m.absent[url] {
			_, still := gone[name]
			back = back || !still
		}
		absent[url] = gone
	}
	before := m.absent
	m.absent, m.held, m.again = absent, 0, time.Time{}
	if !many || m.confirm <= 0 {
		return
	}
	for url, gone := range absent {
		for name, a := range gone {
			if back {
				a.since = now
				gone[name] = a
			}
			due := a.removableAt(m.confirm)
			if !now.Before(due) || !next.keepResource(lost[url].before, name) {
				delete(gone, name) // it is not served any more, so its absence from the next look is not a return
				continue
			}
			if _, was := before[url][name]; !was {
				m.newlyHeld++
			}
			m.held++
			if m.again.IsZero() || due.Before(m.again) {
				m.again = due
			}
		}
	}
}

// committed records the counts before a commit.
func (m *removals) committed(now time.Time, lost map[string]loss) {
	if m.peaks == nil {
		m.peaks = map[string][]peak{}
	}
	for url, l := range lost {
		p := m.peaks[url]
		for len(p) > 0 && p[len(p)-1].n <= l.had {
			p = p[:len(p)-1]
		}
		m.peaks[url] = append(p, peak{l.had, now})
	}
	for url, p := range m.peaks {
		for len(p) > 0 && now.Sub(p[0].until) > peakTime {
			p = p[1:]
		}
		m.peaks[url] = p
		if len(p) == 0 {
			delete(m.peaks, url)
		}
	}
}

// stored returns the recent counts in the form that is stored on disk.
func (m *removals) stored() (all []lastgood.Peak) {
	for _, url := range slices.Sorted(maps.Keys(m.peaks)) {
		for _, p := range m.peaks[url] {
			all = append(all, lastgood.Peak{URL: url, N: p.n, Until: p.until})
		}
	}
	return all
}

// restore takes over stored counts. If the clock was set back, they do not last longer for that.
func (m *removals) restore(now time.Time, all []lastgood.Peak) {
	m.peaks = map[string][]peak{}
	for _, p := range all {
		if p.Until.After(now) {
			p.Until = now
		}
		m.peaks[p.URL] = append(m.peaks[p.URL], peak{p.N, p.Until})
	}
}

// approved forgets the recent counts and the delayed removals.
func (m *removals) approved() { m.peaks, m.absent, m.held, m.again = nil, nil, 0, time.Time{} }

// top returns the highest recent number of resources of a type; n is the present one.
func (m *removals) top(now time.Time, url string, n int) int {
	for _, p := range m.peaks[url] {
		if now.Sub(p.until) <= peakTime {
			return max(n, p.n)
		}
	}
	return n
}

// size returns the number of resources in next, which may be nil.
func (c *typeContent) size(next *typeContent) int {
	if next == nil {
		return 0
	}
	return len(next.at)
}

// gone returns the names of c that next lacks; next may be nil.
func (c *typeContent) gone(next *typeContent) (names []string) {
	for name := range c.at {
		if next == nil || next.at[name].Resource == nil {
			names = append(names, name)
		}
	}
	return names
}

// keepResource adds the resource of c with a name, unless the name is taken.
func (w groupContent) keepResource(c *typeContent, name string) bool {
	if why := w.add(c.at[name]); why != "" {
		return false
	}
	w.types[c.typ.URL].version = "" // the version_info of a response is for the files alone
	return true
}
