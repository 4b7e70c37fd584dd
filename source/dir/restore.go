package dir

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Restore commits the configuration that was served when the program ended. Call it before the first
// Load. That load then compares the files with the restored configuration, as any load does with the
// previous files: it is all or nothing, and large removals are delayed or refused. Clients that
// reconnect find the configuration that they had.
//
// Resources that the program itself has set in the group stay. If the configuration has a resource of
// the same type and name, that one replaces it, as in a load.
//
// A source without files, whose Load is never called, may be given several configurations, one after
// the other.
func (s *Source) Restore(c LastGood) error {
	l, rules, unready, err := s.readDefinitions(c)
	if err != nil {
		return err
	}
	var all []*restoredGroup
	for _, g := range slices.Concat([]lastgood.Group{{Name: groups.Default, Types: c.Types, Gone: c.Gone, Peaks: c.Peaks}}, c.Groups) {
		if g.Name != groups.Default && l.named[g.Name] == nil {
			return fmt.Errorf("nothing says which nodes get group %q", g.Name)
		}
		p, err := s.decodeGroup(g)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	if err := s.reviewPast(all); err != nil {
		return err
	}
	var was, is []groupContent
	for _, p := range all {
		view := s.view(p.part)
		// A resource that the program has set under a removed name must stay.
		maps.DeleteFunc(p.before, func(n resourceKey, l removedResource) bool { return view.Table(l.Type).Lookup(n.name) != nil })
		was, is = append(was, p.before.addTo(p.world)), append(is, p.world)
	}
	s.rememberSecrets(was...)
	// Clients of the previous process may hold recently removed resources, or state an old version.
	// So these resources are set and removed again, before the first client connects.
	if _, err := s.store.Update(func(tx *store.Tx) error {
		for i, p := range all {
			p.part.content.replace(tx.Group(p.group), was[i])
		}
		return nil
	}); err != nil {
		return err
	}
	var ended []*part // groups that only an earlier restored configuration had
	for name, p := range s.parts {
		if p != s.home && !slices.ContainsFunc(all, func(o *restoredGroup) bool { return o.name == name }) {
			ended = append(ended, p)
		}
	}
	needed := l.needed()
	if _, err := s.store.Update(func(tx *store.Tx) error {
		for i, p := range all {
			p.commit(tx.Group(p.group), was[i], needed[p.name])
		}
		for _, p := range ended {
			p.content.replace(tx.Group(p.group), groupContent{})
		}
		for _, name := range unready {
			tx.Group(s.storeGroup(name)).MarkKnown()
		}
		if rules != nil {
			tx.Select(s.selector(rules))
		}
		return nil
	}); err != nil {
		return err
	}
	s.layout, s.rules, s.neverLoaded = l, rules, unready
	if s.opts.ReadBootstraps {
		sc := &scanner{}
		s.prepare(sc)
		sc.scan(s.root)
		s.readBootstraps(sc, false)
	}
	for _, p := range ended {
		delete(s.parts, p.name)
	}
	for _, p := range all {
		p.part.content, p.part.departed, p.part.withheld = p.world, p.before, p.hidden
		p.removals.restore(time.Now(), p.peaks)
		s.parts[p.name] = p.part
	}
	s.home = s.parts[groups.Default]
	s.rememberSecrets(is...)
	s.publishServed()
	if s.opts.References {
		s.missing = s.doubts()
		s.servedWarnings.Store(&servedWarnings{s.allWarnings(), s.countDangling()})
		s.warn()
	}
	return nil
}

// Scratch returns a source without files, with a store of its own. Restore a configuration in it to
// examine the configuration before you restore it in s. Resources that s serves already are shared:
// they are not decoded again, and take no more memory.
//
// The daemon uses it; other programs do not need it.
func (s *Source) Scratch(opts Options) *Source {
	o := New("", store.New(), opts)
	if now := s.served.Load(); now != nil {
		for name, w := range now.contents {
			p := o.newPart(name)
			p.content, o.parts[name] = w, p
		}
		o.home = o.parts[groups.Default]
	}
	return o
}

// readDefinitions reads the stored group files. It returns the rules, and the groups that were never loaded.
func (s *Source) readDefinitions(c LastGood) (l layout, _ *groups.Rules, unready []string, _ error) {
	l = newLayout(s.root)
	if len(c.Definitions) == 0 {
		return l, nil, nil, nil
	}
	var defs []groups.Definition
	wrong := func(problems []findings.Problem) error {
		for _, p := range problems {
			if !p.Warning {
				return p
			}
		}
		return nil
	}
	for _, f := range c.Definitions {
		d, problems := l.define(filepath.Join(s.root, filepath.FromSlash(f.Path)), f.Data)
		if err := wrong(problems); err != nil {
			return l, nil, nil, err
		}
		l.add(d.dir, d)
		def := d.Definition
		if d.Name != groups.Default && !slices.ContainsFunc(c.Groups, func(g lastgood.Group) bool { return g.Name == d.Name }) {
			def.Match, unready = nil, append(unready, d.Name)
		}
		defs = append(defs, def)
	}
	if l.named[groups.Default] == nil {
		l.named[groups.Default] = rootless
	}
	rules, problems := groups.New(defs, groups.Options{CEL: s.opts.CEL})
	slices.Sort(unready)
	return l, rules, unready, wrong(problems)
}

// A restoredGroup is the decoded configuration of one group.
type restoredGroup struct {
	*part
	world  groupContent
	before departed
	hidden []*xds.Type // types with resources that are not known, because they were not stored
	peaks  []lastgood.Peak
}

// commit removes the recently removed resources again, and marks which types are unknown.
func (p *restoredGroup) commit(tx *store.Tx, was groupContent, known bool) {
	was.replace(tx, p.world)
	for _, t := range p.hidden {
		tx.MarkUnknown(t)
	}
	if known {
		tx.MarkKnown()
	}
}

// decodeGroup decodes the stored configuration of a group.
func (s *Source) decodeGroup(g lastgood.Group) (*restoredGroup, error) {
	p := &restoredGroup{part: s.newPart(g.Name), world: groupContent{files: 1, types: map[string]*typeContent{}}, before: departed{}, peaks: g.Peaks}
	if before := s.parts[g.Name]; before != nil {
		p.part = before
	}
	withheld := func(t lastgood.Type) bool { return t.Withheld || t.V2 && !s.opts.V2 } // clients keep their resources of such a type
	for _, t := range g.Types {
		if withheld(t) {
			p.hidden = append(p.hidden, t.Type)
		}
		if t.V2 && !s.opts.V2 {
			s.opts.Log.Warn("resources of the v2 API in the last good configuration are left out", "type", t.URL, "resources", len(t.Resources), "hint", s.opts.called("V2")+" serves them")
			continue
		}
		all, err := s.decodeType(p.part.content, t)
		if err != nil {
			return p, err
		}
		for _, l := range all {
			if why := p.world.add(l); why != "" {
				return p, findings.Problem{File: l.File, Message: why}
			}
		}
		if c := p.world.types[t.URL]; c != nil {
			c.version = t.Version
		}
	}
	var odd []error
	for _, t := range g.Gone {
		for _, r := range t.Resources {
			l, err := s.reader.restored(t.Type, r)
			switch {
			case err != nil:
				odd = append(odd, err)
			case !withheld(t):
				p.before[resourceKey{t.URL, r.Name}] = removedResource{l, time.Now()}
			}
		}
	}
	if odd != nil { // the removed resources may be of types that this program lacks: restore the rest
		s.opts.Log.Warn("cannot read which resources were removed shortly before: clients may lose them before the resources that refer to them", "resources", len(odd), "error", odd[0])
	}
	return p, nil
}

// reviewPast passes the resources to Options.Review before they are restored.
func (s *Source) reviewPast(all []*restoredGroup) error {
	if s.opts.Review == nil {
		return nil
	}
	var now, before []Loaded
	for _, p := range all {
		now, before = append(now, p.world.all()...), append(before, p.before.addTo(groupContent{}).all()...)
	}
	if _, err := s.opts.Review(now); err != nil {
		return err
	}
	if _, err := s.opts.Review(before); err != nil {
		for _, p := range all {
			p.before = nil // they may not be served any more: restore the rest
		}
	}
	return nil
}

// all returns all resources of the group, in no order.
func (w groupContent) all() (all []Loaded) {
	n := 0
	for _, c := range w.types {
		n += len(c.at)
	}
	all = make([]Loaded, 0, n)
	for _, c := range w.types {
		all = slices.AppendSeq(all, maps.Values(c.at))
	}
	return all
}

// reuse returns the resource of w that is equal to a stored one, with the stored place. It is not
// decoded again, and the store sees no change. Most resources of successive configurations are equal.
func (w groupContent) reuse(r lastgood.Resource) (l Loaded, same bool) {
	c := w.types[r.Type.URL]
	if c == nil {
		return l, false
	}
	l = c.at[r.Name]
	if l.Resource == nil || l.Sum != r.Sum || l.Version != r.Version || l.OnDemand != r.OnDemand {
		return l, false
	}
	l.Pos, l.version, l.doc, l.groups = Pos{r.File, r.Line, r.Col, r.Path}, "", 0, nil
	return l, true
}

// decodeType returns the stored resources of a type, as a load returns them. Resources that was has
// already are not decoded again.
func (s *Source) decodeType(was groupContent, t lastgood.Type) ([]Loaded, error) {
	all, errs := make([]Loaded, len(t.Resources)), make([]error, len(t.Resources))
	each(len(all), func(i int) {
		l, same := was.reuse(t.Resources[i])
		if !same {
			l, errs[i] = s.reader.restored(t.Type, t.Resources[i])
		}
		all[i] = l
	})
	return all, cmp.Or(errs...)
}

// restored returns a stored resource, as a load returns it.
func (rd *reader) restored(t *xds.Type, r lastgood.Resource) (Loaded, error) {
	l := Loaded{Resource: r.Resource.Copy(), Pos: Pos{r.File, r.Line, r.Col, r.Path}} // a copy, because the stored one may be shared
	m, err := rd.message(t.URL, r.Body)
	if err != nil {
		return l, fmt.Errorf("%s %q: %w", t.URL, r.Name, err)
	}
	rd.refer(l.Resource, t, m)
	_ = rd.inspect(&l, m) // errors were accepted when the resource was stored
	return l, nil
}

// message decodes a message of a type.
func (rd *reader) message(url string, body []byte) (proto.Message, error) {
	typ, err := rd.types.FindMessageByURL(url)
	if err != nil {
		return nil, err
	}
	m := typ.New().Interface()
	return m, proto.UnmarshalOptions{Resolver: rd.types}.Unmarshal(body, m)
}

// stored returns the resource in the form that is stored on disk.
func (l Loaded) stored() lastgood.Resource {
	return lastgood.Resource{Resource: l.Resource, File: l.File, Line: l.Line, Col: l.Col, Path: l.Path, Secret: l.Secret != ""}
}

// lastGood returns the served configuration in the form that is stored on disk.
func (s *Source) lastGood(at time.Time) lastgood.Config {
	home := s.home.stored()
	c := lastgood.Config{At: at, Types: home.Types, Gone: home.Gone, Peaks: home.Peaks}
	if s.rules == nil {
		return c
	}
	for _, p := range s.sorted()[1:] {
		c.Groups = append(c.Groups, p.stored())
	}
	for _, d := range s.layout.definitions() {
		rel, err := filepath.Rel(s.root, d.dir)
		if d == rootless || err != nil {
			continue
		}
		c.Definitions = append(c.Definitions, lastgood.Definition{Path: filepath.ToSlash(filepath.Join(rel, GroupFile)), Data: d.raw})
	}
	return c
}

// stored returns the group in the form that is stored on disk: its resources, the recently removed ones,
// and the recent counts.
func (p *part) stored() lastgood.Group {
	g := lastgood.Group{Name: p.name, Gone: p.departed.stored(), Peaks: p.removals.stored()}
	for _, url := range slices.Sorted(maps.Keys(p.content.types)) {
		content := p.content.types[url]
		t := lastgood.Type{Type: content.typ, Version: content.version}
		for _, l := range content.at {
			t.Resources = append(t.Resources, l.stored())
		}
		slices.SortFunc(t.Resources, func(a, b lastgood.Resource) int { return strings.Compare(a.Name, b.Name) })
		g.Types = append(g.Types, t)
	}
	return g
}
