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

// A directory that loses much may be one whose files are not there now: an
// unmounted volume, half a checkout, an editor between two steps. What comes is
// taken at once, what goes in numbers is not.
const (
	// guarded is how many resources a type must have for its removals to be
	// looked at by their number.
	guarded = 20

	// peakTime is how long it counts how many a type had.
	peakTime = 10 * time.Minute

	// patience is how many times the usual wait is the longest: files that are
	// written again and again do not keep for ever what has gone.
	patience = 12
)

// removals is what a source knows of what has gone from its files, and how much
// there was. The zero value knows nothing.
type removals struct {
	confirm time.Duration                 // how long much must be gone
	peaks   map[string][]peak             // by type URL: falling numbers, the newest last
	absent  map[string]map[string]absence // by type URL and name: what the last look did not find
	held    int                           // names that are gone from the files and still served
	joined  int                           // how many of these came to it since the log said so
	again   time.Time                     // when to look again at what is held
}

// An absence says since when no look has found a name: the first, and the first
// after something else came back.
type absence struct{ first, since time.Time }

// due returns when the name may leave, if much goes.
func (a absence) due(confirm time.Duration) time.Time {
	last, usual := a.first.Add(patience*confirm), a.since.Add(confirm)
	if usual.After(last) {
		return last
	}
	return usual
}

// A peak is how many resources of a type the files had until a time.
type peak struct {
	n     int
	until time.Time
}

// refusal says why a load is not committed that would remove too much, and what who
// means that may do.
func refusal(what, how string) error {
	if how == "" {
		return errors.New(what)
	}
	return fmt.Errorf("%s: if you want that, %s", what, how)
}

// A loss is what of a type is gone. What is held counts as gone in names alone:
// one small change after the other is not more than that because what the first
// took away is still served.
type loss struct {
	of    *content // what there was
	names []string
	fresh []string // of these, what the last look still found
	had   int      // how many the files had at the last look
	left  int      // how many they have now
	top   int      // how many they had lately, at most
}

// losses returns what of each type is gone, by type URL.
func (m *removals) losses(now time.Time, was, next world) map[string]loss {
	all := map[string]loss{}
	for url, c := range was.types {
		left := next.types[url]
		l := loss{of: c, names: c.gone(left), left: c.size(left)}
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

// refuse says why not if next looks like a part of what the files should say:
// more than half of a type would go, or has gone in steps. At the start files without a
// resource are no more than no files: nobody has seen them become so.
func (m *removals) refuse(lost map[string]loss, was, next world, starting bool) (why string) {
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
		case l.had >= guarded && 2*len(l.fresh) > l.had:
			all = append(all, fmt.Sprintf("remove %d of %d %s resources, such as %q", len(l.fresh), l.had, l.of.typ, first(l.fresh)))
		case len(l.fresh) > 0 && l.top >= guarded && 2*l.left < l.top:
			all = append(all, fmt.Sprintf("leave only %d of the %d %s resources of the last %d minutes", l.left, l.top, l.of.typ, int(peakTime.Minutes())))
		}
	}
	if all == nil {
		return ""
	}
	slices.Sort(all)
	return "this would " + strings.Join(all, " and ")
}

// first returns the first of many names, which are enough to tell which file is meant.
func first(names []string) []string {
	slices.Sort(names)
	return names[:min(3, len(names))]
}

// hold keeps in next what has not been gone for long enough, if a type loses more
// than a tenth. All that goes waits for it, so that nothing is left alone that
// refers to it. What comes back in the meantime says that files are being written:
// what is still gone is then gone from now on.
func (m *removals) hold(now time.Time, lost map[string]loss, next world) {
	absent := map[string]map[string]absence{}
	many, back := false, false
	for url, l := range lost {
		many = many || l.top >= guarded && len(l.names) > 0 && (10*len(l.names) > l.had || 10*(l.top-l.left) > l.top)
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
			due := a.due(m.confirm)
			if !now.Before(due) || !next.keep(lost[url].of, name) {
				delete(gone, name) // it is served no more: that no look misses it is no coming back
				continue
			}
			if _, was := before[url][name]; !was {
				m.joined++
			}
			if m.held++; m.again.IsZero() || due.Before(m.again) {
				m.again = due
			}
		}
	}
}

// committed notes how much there was before.
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
		if m.peaks[url] = p; len(p) == 0 {
			delete(m.peaks, url)
		}
	}
}

// kept returns how much there was, as it is kept on disk.
func (m *removals) kept() (all []lastgood.Peak) {
	for _, url := range slices.Sorted(maps.Keys(m.peaks)) {
		for _, p := range m.peaks[url] {
			all = append(all, lastgood.Peak{URL: url, N: p.n, Until: p.until})
		}
	}
	return all
}

// restore takes up what was kept. A clock that was set back makes nothing last longer.
func (m *removals) restore(now time.Time, all []lastgood.Peak) {
	m.peaks = map[string][]peak{}
	for _, p := range all {
		if p.Until.After(now) {
			p.Until = now
		}
		m.peaks[p.URL] = append(m.peaks[p.URL], peak{p.N, p.Until})
	}
}

// approved forgets how much there was.
func (m *removals) approved() { m.peaks, m.absent, m.held, m.again = nil, nil, 0, time.Time{} }

// top returns how many resources a type had at most lately; it has n now.
func (m *removals) top(now time.Time, url string, n int) int {
	for _, p := range m.peaks[url] {
		if now.Sub(p.until) <= peakTime {
			return max(n, p.n)
		}
	}
	return n
}

// size returns how many resources there are in next, nil for none.
func (c *content) size(next *content) int {
	if next == nil {
		return 0
	}
	return len(next.at)
}

// gone returns the names that next, nil for nothing, has no more.
func (c *content) gone(next *content) (names []string) {
	for name := range c.at {
		if next == nil || next.at[name].Resource == nil {
			names = append(names, name)
		}
	}
	return names
}

// keep adds what c has under a name, unless something else has taken the name.
func (w world) keep(c *content, name string) bool {
	if why := w.add(c.at[name]); why != "" {
		return false
	}
	w.types[c.typ.URL].version = "" // of what the files say, which this is not
	return true
}
