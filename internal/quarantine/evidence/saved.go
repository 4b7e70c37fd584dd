package evidence

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// This file turns the evidence into bytes and back: for the disk, so that it survives a restart, and for
// other servers with the same content. The bytes have the replaced versions with their bodies. Of the
// current versions they have hashes only: the server has these bodies anyway.

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
func (b *Book) Save(now time.Time, limit int) ([]byte, error) {
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
			out.Scopes[i].Types = append(out.Scopes[i].Types, s.save(now, endpoints, &left)...)
		}
	}
	out.Scopes = slices.DeleteFunc(out.Scopes, func(s savedScope) bool { return len(s.Types) == 0 })
	return json.Marshal(out)
}

// save returns the types of the scope that are, or are not, endpoints. It subtracts their approximate size
// from left.
func (s *Scope) save(now time.Time, endpoints bool, left *int) (all []savedType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.all {
		if e.typ.Is(xds.Endpoint) != endpoints {
			continue
		}
		if t := e.save(now, left); len(t.Worlds)+len(t.Named)+len(t.Replaced) > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b savedType) int { return cmp.Compare(a.URL, b.URL) })
	return all
}

func (e *evidence) save(now time.Time, left *int) savedType {
	t := savedType{URL: e.typ.URL, Agents: slices.Clone(e.agents), Owners: slices.Clone(e.owners[:len(e.agents)])}
	if e.current.Load() == nil {
		t.Worlds, t.Named = e.restored.Worlds, e.restored.Named
	} else {
		t.Worlds, t.Named = e.saveWorlds(), e.saveNamed()
	}
	for _, w := range t.Worlds {
		for _, n := range w.Except {
			*left -= len(n) + 4
		}
	}
	for _, n := range t.Named {
		*left -= len(n.Name) + 48
	}
	for name, vs := range e.replaced {
		for i, v := range vs {
			size := len(v.Body)*4/3 + len(name) + 256
			switch {
			case v.by == 0 && !v.removed, now.Sub(v.until) > MaxAge, size > *left:
			case secret(e.typ) && (i > 0 || v.removed || e.acceptsCurrent(name)):
			default:
				*left -= size
				t.Replaced = append(t.Replaced, v.save())
			}
		}
	}
	slices.SortStableFunc(t.Replaced, func(a, b savedVersion) int { return cmp.Compare(a.Name, b.Name) })
	return t
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

// Learn replaces the evidence of other servers. It omits servers whose evidence is unreadable.
func (b *Book) Learn(servers [][]byte) {
	var all []*Scope
	for _, data := range servers {
		if scopes, err := new(Book).read(data); err == nil {
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

// read returns the scopes in saved evidence.
func (b *Book) read(data []byte) (all []*Scope, err error) {
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
			if t.URL != "" {
				s.restore(t)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func (s *Scope) restore(t savedType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of(xds.TypeOf(t.URL))
	e.agents = slices.Clone(t.Agents[:min(len(t.Agents), maxAgents)])
	copy(e.owners[:len(e.agents)], t.Owners)
	for _, v := range t.Replaced {
		r := &xds.Resource{Stamp: &xds.Stamp{Name: v.Name, Addresses: wire.Addresses(e.typ, v.Body)}, Type: e.typ, Body: v.Body, Aliases: v.Aliases, TTL: v.TTL}
		if v.Refs != nil {
			r.Refs = make([]xds.Ref, 0, len(v.Refs))
			for _, ref := range v.Refs {
				r.Refs = append(r.Refs, xds.Ref{Type: xds.TypeOf(ref.URL), Name: ref.Name})
			}
		}
		r.Seal(v.Version)
		if r.CheckType(e.typ) == nil && len(e.replaced[v.Name]) < maxVersions && e.count < maxReplaced {
			e.count++
			s.book.bytes.Add(int64(len(r.Body)))
			e.replaced[v.Name] = append(e.replaced[v.Name], version{Resource: r, until: v.Until, support: support{v.By, v.Owners}, removed: v.Removed, revision: v.Revision})
		}
	}
	for _, vs := range e.replaced {
		slices.SortStableFunc(vs, func(a, b version) int { return b.until.Compare(a.until) })
	}
	e.restored = t
	e.restored.Replaced = nil
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
