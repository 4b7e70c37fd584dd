package dir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/lastgood"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Restore commits what was served when the program ended, before the first Load.
// What the files say then is to that what it is to the files of a moment ago: it is
// taken all or nothing, and much that has gone is asked about. Clients that were
// told the last good configuration find it when they come back.
//
// What the program has set in the group itself stays, unless the configuration has a resource of
// the same type and name: that replaces it, as a load does.
func (s *Source) Restore(c LastGood) error {
	w := world{files: 1, types: map[string]*content{}}
	withheld := func(t lastgood.Type) bool { return t.Withheld || t.V2 && !s.opts.V2 } // clients keep what they have
	for _, t := range c.Types {
		if t.V2 && !s.opts.V2 {
			s.opts.Log.Warn("resources of the v2 API in the last good configuration are left out", "type", t.URL, "resources", len(t.Resources), "hint", s.opts.called("V2")+" serves them")
			continue
		}
		for _, r := range t.Resources {
			l, err := s.reader.restored(t.Type, r)
			if err != nil {
				return err
			}
			if why := w.add(l); why != "" {
				return findings.Problem{File: r.File, Message: why}
			}
		}
		if c := w.types[t.URL]; c != nil {
			c.version = t.Version
		}
	}
	before := departed{}
	var odd []error
	for _, t := range c.Gone {
		for _, r := range t.Resources {
			l, err := s.reader.restored(t.Type, r)
			switch {
			case err != nil:
				odd = append(odd, err)
			case !withheld(t):
				before[goneName{t.URL, r.Name}] = gone{l, time.Now()}
			}
		}
	}
	if odd != nil { // what had gone, perhaps with its types, is no reason to forget the rest
		s.opts.Log.Warn("cannot read which resources were removed shortly before: clients may lose them before the resources that refer to them", "resources", len(odd), "error", odd[0])
	}
	if s.opts.Review != nil {
		if _, err := s.opts.Review(w.all()); err != nil {
			return err
		}
		if _, err := s.opts.Review(before.with(world{}).all()); err != nil {
			before = nil // what may not be served any more is no reason to forget the rest
		}
	}
	view := s.store.Snapshot().View(s.opts.Group)
	maps.DeleteFunc(before, func(n goneName, l gone) bool { return view.Table(l.Type).Lookup(n.name) != nil }) // it is the program's now
	was := before.with(w)
	s.hides(was)
	// What had gone lately is what clients may have whom nobody knows here, or who state a
	// version of before: it goes once more, before the first of them comes.
	if _, err := s.store.Update(func(tx *store.Tx) error { s.world.replace(tx.Group(s.opts.Group), was); return nil }); err != nil {
		return err
	}
	_, err := s.store.Update(func(tx *store.Tx) error {
		tx = tx.Group(s.opts.Group)
		was.replace(tx, w)
		for _, t := range c.Types {
			if withheld(t) {
				tx.Unknown(t.Type)
				s.withheld = append(s.withheld, t.Type)
			}
		}
		return nil
	})
	if err == nil {
		s.hides(w)
		s.departed = before
		s.removals.restore(time.Now(), c.Peaks)
		s.serves(w)
	}
	return err
}

func (w world) all() (all []Loaded) {
	for _, c := range w.types {
		all = slices.AppendSeq(all, maps.Values(c.at))
	}
	return all
}

// restored makes what was kept of a resource as a load makes it.
func (rd *reader) restored(t *xds.Type, r lastgood.Resource) (Loaded, error) {
	l := Loaded{Resource: r.Resource, Pos: Pos{r.File, r.Line, r.Col, r.Path}}
	m, err := rd.message(t.URL, r.Body)
	if err != nil {
		return l, fmt.Errorf("%s %q: %w", t.URL, r.Name, err)
	}
	rd.refer(l.Resource, t, m)
	_ = rd.inspect(&l, m) // what is wrong with it was no mistake when it was kept
	return l, nil
}

// message returns the message of a type that bytes are.
func (rd *reader) message(url string, body []byte) (proto.Message, error) {
	typ, err := rd.types.FindMessageByURL(url)
	if err != nil {
		return nil, err
	}
	m := typ.New().Interface()
	return m, proto.UnmarshalOptions{Resolver: rd.types}.Unmarshal(body, m)
}

// kept returns what is kept of a resource.
func (l Loaded) kept() lastgood.Resource {
	return lastgood.Resource{Resource: l.Resource, File: l.File, Line: l.Line, Col: l.Col, Path: l.Path, Secret: l.Secret != ""}
}

// config returns what is to be kept of the world, of what has gone lately, and of how much
// there was.
func (w world) config(at time.Time, d departed, m *removals) lastgood.Config {
	c := lastgood.Config{At: at, Gone: d.kept(), Peaks: m.kept()}
	for _, url := range slices.Sorted(maps.Keys(w.types)) {
		content := w.types[url]
		t := lastgood.Type{Type: content.typ, Version: content.version}
		for _, l := range content.at {
			t.Resources = append(t.Resources, l.kept())
		}
		slices.SortFunc(t.Resources, func(a, b lastgood.Resource) int { return strings.Compare(a.Name, b.Name) })
		c.Types = append(c.Types, t)
	}
	return c
}
