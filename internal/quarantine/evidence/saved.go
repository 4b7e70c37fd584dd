package evidence

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// This file turns the evidence into bytes and back: for the disk, so that it survives a restart, and for
// other servers with the same content. On disk the replaced versions have their bodies. Of the current versions
// there are hashes only: the server has these bodies anyway. Other servers get no bodies at all, and use none: a
// server that may share evidence need not have the right to commit content.

// savedFormat is the format of the bytes. A reader ignores unknown fields.
const savedFormat = 1

// ErrNewer means that a newer version of this program saved the evidence, in another format.
var ErrNewer = errors.New("evidence of a newer version of Chancery")

// maxExcept is the maximum number of current names that a saved table lacks.
const maxExcept = 1000

// maxSavedNames is the maximum number of names of a type in a scope for which accepted hashes are saved.
const maxSavedNames = 10_000

type saved struct {
	Format int          `json:"format"`
	Scopes []savedScope `json:"scopes"`
	Oldest uint64       `json:"oldest,omitempty"` // the oldest revision with content of shared versions; a sweep keeps it
}

type savedScope struct {
	Group    string      `json:"group"`
	Identity string      `json:"identity,omitempty"`
	Types    []savedType `json:"types"`
}

type savedType struct {
	URL      string         `json:"type"`
	Agents   []string       `json:"agents"`
	Owners   []ownerSet     `json:"owners,omitempty"` // of each agent
	Worlds   []savedWorld   `json:"tables,omitempty"`
	Named    []savedName    `json:"names,omitempty"`
	Replaced []savedVersion `json:"replaced,omitempty"`
	Shared   []savedSum     `json:"versions,omitempty"` // replaced versions without their bodies
}

// A savedWorld is a current table that clients of a kind accepted, except some names.
type savedWorld struct {
	Agent  int      `json:"agent"`
	Sum    string   `json:"sum"`
	Owners ownerSet `json:"owners,omitempty"`
	Except []string `json:"except,omitempty"`
}

type savedName struct {
	Name   string   `json:"name"`
	Sum    string   `json:"sum"`
	By     agentSet `json:"by"`
	Owners ownerSet `json:"owners,omitempty"`
}

// ownersOf returns the owners of the clients of a kind.
func (t *savedType) ownersOf(agent int) ownerSet {
	if agent < len(t.Owners) {
		return t.Owners[agent]
	}
	return 0
}

type savedVersion struct {
	Name    string        `json:"name"`
	Version string        `json:"version"`
	Body    []byte        `json:"body"`
	Aliases []string      `json:"aliases,omitempty"`
	TTL     time.Duration `json:"ttl,omitempty"`
	Refs    []savedRef    `json:"refs"` // null: unknown
	Until   time.Time     `json:"until"`
	By      agentSet      `json:"by"`
	Owners  ownerSet      `json:"owners,omitempty"`
	Removed bool          `json:"removed,omitempty"`

	Revision string `json:"revision,omitempty"`
}

// A savedSum is a replaced version for other servers, which know its content.
type savedSum struct {
	Name    string    `json:"name"`
	Sum     string    `json:"sum"`
	Until   time.Time `json:"until"`
	By      agentSet  `json:"by"`
	Owners  ownerSet  `json:"owners,omitempty"`
	Removed bool      `json:"removed,omitempty"`

	Revision string `json:"revision,omitempty"`
}

type savedRef struct {
	URL  string `json:"type"`
	Name string `json:"name"`
}

// Changed returns a new channel with one slot. It has a value if Save may return other bytes than before.
func (b *Book) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{}, 1)
	b.changes = append(b.changes, c)
	return c
}

func (b *Book) change() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.changes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Save returns the evidence of this server in at most about limit bytes. Versions of endpoints are the
// first to be left out. A replaced secret is saved only until a client accepts its successor.
func (b *Book) Save(now time.Time, limit int) ([]byte, error) { return b.save(now, limit, true) }

// Share is like Save, for other servers ([Book.Learn]): it has no bodies. It returns nil without any evidence.
func (b *Book) Share(now time.Time, limit int) ([]byte, error) { return b.save(now, limit, false) }

func (b *Book) save(now time.Time, limit int, bodies bool) ([]byte, error) {
	b.mu.Lock()
	scopes := make([]*Scope, 0, len(b.scopes))
	for _, s := range b.scopes {
		scopes = append(scopes, s)
	}
	b.mu.Unlock()
	slices.SortFunc(scopes, func(x, y *Scope) int {
		return cmp.Or(cmp.Compare(x.key.group, y.key.group), cmp.Compare(x.key.identity, y.key.identity))
	})
	left := limit
	out := saved{Format: savedFormat, Scopes: make([]savedScope, len(scopes))}
	for _, endpoints := range []bool{false, true} {
		for i, s := range scopes {
			out.Scopes[i].Group, out.Scopes[i].Identity = s.key.group, s.key.identity
			out.Scopes[i].Types = append(out.Scopes[i].Types, s.save(now, endpoints, bodies, &left)...)
		}
	}
	out.Scopes = slices.DeleteFunc(out.Scopes, func(s savedScope) bool { return len(s.Types) == 0 })
	if !bodies {
		if len(out.Scopes) == 0 {
			return nil, nil
		}
		for _, s := range scopes {
			out.Oldest = s.oldest(now, out.Oldest)
		}
	}
	return json.Marshal(out)
}

// save returns the types of the scope that are, or are not, endpoints. It subtracts their approximate size
// from left.
func (s *Scope) save(now time.Time, endpoints, bodies bool, left *int) (all []savedType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.all {
		if e.typ.Is(xds.Endpoint) != endpoints {
			continue
		}
		if t := e.save(now, bodies, left); len(t.Worlds)+len(t.Named)+len(t.Replaced)+len(t.Shared) > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b savedType) int { return cmp.Compare(a.URL, b.URL) })
	return all
}

func (e *evidence) save(now time.Time, bodies bool, left *int) savedType {
	t := savedType{URL: e.typ.URL, Agents: slices.Clone(e.agents), Owners: slices.Clone(e.owners[:len(e.agents)])}
	if !bodies {
		*left -= 256
		for _, a := range e.agents {
			*left -= len(a) + 24
		}
	}
	worlds, named := e.restored.Worlds, e.restored.Named
	if e.current.Load() != nil {
		worlds, named = e.saveWorlds(), e.saveNamed()
	}
	for _, w := range worlds {
		size := 0
		for _, n := range w.Except {
			size += len(n) + 4
		}
		if size <= *left {
			*left -= size
			t.Worlds = append(t.Worlds, w)
		}
	}
	for _, n := range named {
		if size := len(n.Name) + 48; size <= *left {
			*left -= size
			t.Named = append(t.Named, n)
		}
	}
	for name, vs := range e.replaced {
		for i, v := range vs {
			size := len(name) + 256
			if bodies {
				size += len(v.Body) * 4 / 3
			}
			switch {
			case v.by == 0 && !v.removed, now.Sub(v.until) > MaxAge, size > *left:
			case secret(e.typ) && (i > 0 || v.removed || e.acceptsCurrent(name)):
			case bodies:
				*left -= size
				t.Replaced = append(t.Replaced, v.save())
			default:
				*left -= size
				t.Shared = append(t.Shared, savedSum{name, v.Sum.String(), v.until, v.by, v.owners, v.removed, v.revision})
			}
		}
	}
	slices.SortStableFunc(t.Replaced, func(a, b savedVersion) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(t.Shared, func(a, b savedSum) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

// oldest returns the older one of a revision and the oldest revision that has the content of a version that
// clients accepted: the one before its successor. 0: none.
func (s *Scope) oldest(now time.Time, is uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.all {
		for name, vs := range e.replaced {
			next := ""
			if r := e.visible(name); r != nil {
				next = s.revision(e.typ, name, r.Sum)
			}
			for _, v := range vs {
				n, err := strconv.ParseUint(strings.TrimPrefix(next, "r"), 10, 64)
				if err == nil && n > 1 && v.by != 0 && now.Sub(v.until) <= MaxAge && (is == 0 || n-1 < is) {
					is = n - 1
				}
				next = v.revision
			}
		}
	}
	return is
}

// acceptsCurrent reports whether a client has accepted the current version of a name.
func (e *evidence) acceptsCurrent(name string) bool {
	t := e.current.Load()
	if t == nil {
		return false
	}
	r := t.Lookup(name)
	return r == nil || e.acceptedBy(name, r.Sum).by != 0
}

func (v *version) save() savedVersion {
	s := savedVersion{Name: v.Name, Version: v.Version, Body: v.Body, Aliases: v.Aliases, TTL: v.TTL, Until: v.until, By: v.by, Owners: v.owners, Removed: v.removed, Revision: v.revision}
	if v.Refs != nil {
		s.Refs = make([]savedRef, len(v.Refs))
		for i, r := range v.Refs {
			s.Refs[i] = savedRef{r.Type.URL, r.Name}
		}
	}
	return s
}

func (e *evidence) saveWorlds() (all []savedWorld) {
	current := e.current.Load().Versions()
	for i := range e.agents {
		for _, w := range e.worlds[i] {
			s := savedWorld{Agent: i, Sum: current.Sum().String(), Owners: w.owners}
			for old := range w.Since(current) {
				if old != nil {
					s.Except = append(s.Except, old.Name)
				}
				if len(s.Except) > maxExcept {
					break
				}
			}
			if len(s.Except) <= maxExcept {
				slices.Sort(s.Except)
				all = append(all, s)
			}
		}
	}
	return all
}

func (e *evidence) saveNamed() (all []savedName) {
	for name, a := range e.named {
		if len(all) == maxSavedNames {
			break
		}
		all = append(all, savedName{name, a.sum.String(), a.by, a.owners})
	}
	slices.SortFunc(all, func(a, b savedName) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Restore adds the evidence that an earlier run of this server saved. Call it before the first use of the
// book. After [ErrNewer] the caller must keep the bytes for the newer version.
func (b *Book) Restore(data []byte) error {
	scopes, err := b.read(data)
	if err != nil {
		return err
	}
	defer b.change()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scopes = map[scopeKey]*Scope{}
	for _, s := range scopes {
		if len(b.scopes) < maxScopes {
			b.scopes[s.key] = s
		}
	}
	return nil
}

// Known returns the content of a version with this sum that the revisions of the servers have, in a group as in
// [Book.Scope]; nil: they do not have it.
type Known = func(group string, t *xds.Type, name, sum string) *xds.Resource

// Learn replaces the evidence of other servers: their bytes, each with the time when they were made. It omits
// servers whose evidence is unreadable, and versions whose content neither this book nor known has. It ignores
// the bodies that earlier builds shared.
func (b *Book) Learn(servers iter.Seq2[time.Time, []byte], known Known) {
	var all []*Scope
	for at, data := range servers {
		if scopes, err := (&Book{}).readShared(data, at, b.orOwn(known)); err == nil {
			all = append(all, scopes...)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.foreign = map[string][]*Scope{}
	for _, s := range all[:min(len(all), maxScopes)] {
		b.foreign[s.key.group] = append(b.foreign[s.key.group], s)
	}
}

// orOwn returns a function that looks in the scopes of this book first.
func (b *Book) orOwn(known Known) Known {
	scopes := map[string][]*Scope{}
	b.mu.Lock()
	for k, s := range b.scopes {
		scopes[k.group] = append(scopes[k.group], s)
	}
	b.mu.Unlock()
	return func(group string, t *xds.Type, name, sum string) *xds.Resource {
		for _, s := range scopes[group] {
			if r := s.version(t, name, sum); r != nil {
				return r
			}
		}
		return known(group, t, name, sum)
	}
}

// version returns a current or replaced version with this sum; nil: there is none.
func (s *Scope) version(t *xds.Type, name, sum string) *xds.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil {
		return nil
	}
	if r := e.visible(name); r != nil && r.Sum.String() == sum {
		return r
	}
	for _, v := range e.replaced[name] {
		if v.Sum.String() == sum {
			return v.Resource
		}
	}
	return nil
}

// read returns the scopes in evidence on disk.
func (b *Book) read(data []byte) ([]*Scope, error) {
	return b.decode(data, func(s *Scope, e *evidence, t savedType) {
		for _, v := range t.Replaced {
			s.restore(e, v.resource(e.typ), version{until: v.Until, support: support{v.By, v.Owners}, removed: v.Removed, revision: v.Revision})
		}
	})
}

// readShared returns the scopes in evidence of another server, which it made at this time.
func (b *Book) readShared(data []byte, at time.Time, known Known) ([]*Scope, error) {
	return b.decode(data, func(s *Scope, e *evidence, t savedType) {
		for _, v := range t.Replaced { // an earlier build shares bodies: they serve only for the sum
			t.Shared = append(t.Shared, savedSum{v.Name, v.resource(e.typ).Sum.String(), v.Until, v.By, v.Owners, v.Removed, v.Revision})
		}
		for _, v := range t.Shared[:min(len(t.Shared), maxReplaced)] {
			if v.Until.After(at) {
				v.Until = at
			}
			if r := known(s.key.group, e.typ, v.Name, v.Sum); r != nil {
				s.restore(e, r, version{until: v.Until, support: support{v.By, v.Owners}, removed: v.Removed, revision: v.Revision})
			}
		}
	})
}

// decode returns the scopes in saved evidence. The function adds the replaced versions of a type.
func (b *Book) decode(data []byte, replaced func(*Scope, *evidence, savedType)) (all []*Scope, err error) {
	var in saved
	err = json.Unmarshal(data, &in) // sets the format even if a newer one has other fields
	switch {
	case in.Format > savedFormat:
		return nil, ErrNewer
	case err != nil:
		return nil, err
	case in.Format != savedFormat:
		return nil, fmt.Errorf("evidence has the format %d, want %d", in.Format, savedFormat)
	}
	for _, is := range in.Scopes {
		s := &Scope{book: b, key: scopeKey{is.Group, is.Identity}}
		for _, t := range is.Types {
			if t.URL == "" {
				continue
			}
			e := s.of(xds.TypeOf(t.URL)) // no other goroutine has the scope yet
			e.agents = slices.Clone(t.Agents[:min(len(t.Agents), maxAgents)])
			copy(e.owners[:len(e.agents)], t.Owners)
			replaced(s, e, t)
			for _, vs := range e.replaced {
				slices.SortStableFunc(vs, func(a, b version) int { return b.until.Compare(a.until) })
			}
			e.restored = t
			e.restored.Replaced, e.restored.Shared = nil, nil
		}
		all = append(all, s)
	}
	return all, nil
}

// restore adds a replaced version.
func (s *Scope) restore(e *evidence, r *xds.Resource, v version) {
	v.Resource = r
	if r.CheckType(e.typ) == nil && len(e.replaced[r.Name]) < maxVersions && e.count < maxReplaced {
		e.count++
		s.book.bytes.Add(int64(len(r.Body)))
		e.replaced[r.Name] = append(e.replaced[r.Name], v)
	}
}

// resource returns the version of a type.
func (v *savedVersion) resource(t *xds.Type) *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: v.Name, Addresses: wire.Addresses(t, v.Body)}, Type: t, Body: v.Body, Aliases: v.Aliases, TTL: v.TTL}
	if v.Refs != nil {
		r.Refs = make([]xds.Ref, 0, len(v.Refs))
		for _, ref := range v.Refs {
			r.Refs = append(r.Refs, xds.Ref{Type: xds.TypeOf(ref.URL), Name: ref.Name})
		}
	}
	r.Seal(v.Version)
	return r
}

// resume takes the accepted hashes of an earlier run that match the current table.
func (e *evidence) resume() {
	current := e.current.Load()
	sum := current.Versions().Sum().String()
	for _, w := range e.restored.Worlds {
		if w.Sum != sum || w.Agent < 0 || w.Agent >= len(e.agents) || len(e.worlds[w.Agent]) == maxWorlds {
			continue
		}
		if t, err := current.With(nil, w.Except...); err == nil {
			e.worlds[w.Agent] = append(e.worlds[w.Agent], world{t.Versions(), w.Owners})
		}
	}
	for _, n := range e.restored.Named {
		if r := current.Lookup(n.Name); r != nil && r.Sum.String() == n.Sum && len(e.named) < maxNamed {
			e.named[r.Name] = acceptance{r.Sum, support{n.By, n.Owners}}
		}
	}
}
