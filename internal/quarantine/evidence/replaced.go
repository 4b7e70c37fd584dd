package evidence

import (
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// This file records the tables that clients see, and keeps the versions that these tables replaced.

// A version is a replaced version of a resource.
type version struct {
	*xds.Resource
	support
	until    time.Time // when it was replaced
	removed  bool      // the name was removed
	revision string    // that set it; "": unknown
}

// Show records that the clients of the scope now see a table. For the first table of a type, recent returns
// the earlier ones, newest first. The usual case, a table that is not new, needs no lock.
func (s *Scope) Show(now time.Time, t *xds.Type, table *xds.Table, recent func(*xds.Type) []*xds.Table) {
	e := s.find(t)
	if e != nil && e.current.Load() == table {
		return
	}
	var before []*xds.Table
	if e == nil || e.current.Load() == nil {
		before = recent(t)
		before = before[:min(len(before), maxChain)]
	}
	elsewhere := s.book.elsewhere(s.key.group, t.URL)
	defer s.book.change()
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.of(t)
	e.elsewhere = elsewhere
	first := e.current.Load() == nil
	if first {
		for _, old := range slices.Backward(before) {
			s.replace(e, now, old)
			e.resume()
		}
	}
	s.replace(e, now, table)
	if first {
		e.resume()
		e.restored = savedType{}
		for name := range e.replaced { // a return to an earlier version while the server was down
			if r := table.Lookup(name); r != nil {
				s.returned(e, r.Stamp)
			}
		}
	}
}

// replace makes a table the current one. An evicted scope forgets the replaced versions. The scope is locked.
func (s *Scope) replace(e *evidence, now time.Time, table *xds.Table) {
	size := e.size()
	was := e.current.Swap(table)
	if s.evicted {
		return
	}
	s.book.names.Add(int64(table.Len() - size))
	defer e.catchUp(table)
	if was == nil || was == table {
		return
	}
	elsewhere := e.acceptedElsewhere(was)
	clear(e.messages) // clients acknowledge content that comes back with an equal message
	for old, is := range table.Versions().Since(was.Versions()) {
		var by support
		if old != nil {
			by = e.acceptedBy(old.Name, old.Sum)
			by.add(elsewhere(old))
			delete(e.named, old.Name)
		}
		var back agentSet
		if is != nil {
			back = s.returned(e, is)
		}
		by.by &^= back
		if old != nil && (by.by != 0 || back == 0) {
			s.push(e, version{Resource: was.Lookup(old.Name), until: now, support: by, removed: is == nil, revision: s.revision(e.typ, old.Name, old.Sum)})
		}
	}
	if e.count > maxReplaced || s.book.bytes.Load() > maxBytes {
		s.trim(e, now)
	}
}

// acceptedElsewhere returns a function that returns the clients that accepted a version in a table on other
// servers.
func (e *evidence) acceptedElsewhere(was *xds.Table) func(*xds.Stamp) support {
	type world struct {
		support
		except []string // sorted
	}
	var worlds []world
	sum := was.Versions().Sum().String()
	for _, t := range e.elsewhere {
		for _, w := range t.Worlds {
			if w.Sum == sum && w.Agent >= 0 && w.Agent < len(t.Agents) {
				worlds = append(worlds, world{support{1 << e.agent(t.Agents[w.Agent], t.ownersOf(w.Agent)), w.Owners}, w.Except})
			}
		}
	}
	return func(st *xds.Stamp) (by support) {
		for _, w := range worlds {
			if _, lacks := slices.BinarySearch(w.except, st.Name); !lacks {
				by.add(w.support)
			}
		}
		for _, t := range e.elsewhere {
			at, ok := slices.BinarySearchFunc(t.Named, st.Name, func(n savedName, name string) int { return strings.Compare(n.Name, name) })
			if !ok || t.Named[at].Sum != st.Sum.String() {
				continue
			}
			for i, agent := range t.Agents[:min(len(t.Agents), maxAgents)] {
				if t.Named[at].By&(1<<i) != 0 {
					by.add(support{1 << e.agent(agent, t.ownersOf(i)), t.Named[at].Owners})
				}
			}
		}
		return by
	}
}

// elsewhere returns what clients of a group accepted of a type on other servers.
func (b *Book) elsewhere(group, url string) (all []savedType) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.foreign[group] {
		if e, ok := s.types.Load(url); ok {
			all = append(all, e.(*evidence).restored) // foreign evidence does not change
		}
	}
	return all
}

// returned forgets the versions that must not be served before a new version of a name. If the new version was
// served before, the versions after it were rolled back, for the kinds of clients that had accepted it: a return
// to refused content rolls back nothing. It returns these kinds. If the name was removed, its versions were
// removed, too.
func (s *Scope) returned(e *evidence, is *xds.Stamp) (back agentSet) {
	vs := e.replaced[is.Name]
	if len(vs) == 0 {
		return 0
	}
	at := slices.IndexFunc(vs, func(v version) bool { return v.Sum == is.Sum })
	if at >= 0 {
		back = vs[at].by
		if back != 0 && len(e.named) < maxNamed { // clients that kept it do not acknowledge it again
			by := e.acceptedBy(is.Name, is.Sum)
			by.add(vs[at].support)
			e.named[is.Name] = acceptance{is.Sum, by}
		}
	}
	var left []version
	for i, v := range vs {
		if i < at {
			v.by &^= back
		}
		if vs[0].removed || i == at || i < at && back != 0 && v.by == 0 {
			s.forget(e, v)
		} else {
			left = append(left, v)
		}
	}
	e.keep(is.Name, left)
	return back
}

func (e *evidence) keep(name string, vs []version) {
	if len(vs) == 0 {
		delete(e.replaced, name)
	} else {
		e.replaced[name] = vs
	}
}

// push adds the newest replaced version of a name.
func (s *Scope) push(e *evidence, v version) {
	vs := slices.Insert(e.replaced[v.Name], 0, v)
	e.count++
	s.book.bytes.Add(int64(len(v.Body)))
	if len(vs) > maxVersions {
		turn := inTurn(slices.Clone(vs)) // the oldest version without an ACK, else the last in turn
		at := slices.IndexFunc(vs, func(v version) bool { return v.Sum == turn[maxVersions].Sum })
		for i := maxVersions; i > 0; i-- {
			if vs[i].by == 0 {
				at = i
				break
			}
		}
		s.forget(e, vs[at])
		vs = slices.Delete(vs, at, at+1)
	}
	e.replaced[v.Name] = vs
}

func (s *Scope) forget(e *evidence, v version) {
	e.count--
	s.book.bytes.Add(-int64(len(v.Body)))
}

// trim drops about the older half of the replaced versions, and those that are too old.
func (s *Scope) trim(e *evidence, now time.Time) {
	times := make([]time.Time, 0, e.count)
	for _, vs := range e.replaced {
		for _, v := range vs {
			times = append(times, v.until)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	from := now.Add(-MaxAge)
	if len(times) > 0 && times[len(times)/2].After(from) {
		from = times[len(times)/2]
	}
	for name, vs := range e.replaced {
		var left []version
		for _, v := range vs {
			if v.until.Before(from) {
				s.forget(e, v)
			} else {
				left = append(left, v)
			}
		}
		e.keep(name, left)
	}
	for name, vs := range e.replaced { // one commit replaced too many
		if e.count <= maxReplaced && s.book.bytes.Load() <= maxBytes {
			return
		}
		for _, v := range vs {
			s.forget(e, v)
		}
		delete(e.replaced, name)
	}
}
