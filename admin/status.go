package admin

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// A counts caches the number of resources of each group, at a commit.
type counts struct {
	mu     sync.Mutex // held for memory access only
	at     *store.Snapshot
	groups []api.Group
	all    int // resources of all groups
}

// of returns the groups of a snapshot, which the caller may change, and the number of their resources.
func (c *counts) of(now *store.Snapshot) ([]api.Group, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != now {
		c.at, c.groups, c.all = now, nil, 0
		for _, name := range now.Groups() {
			n := 0
			for _, t := range now.Effective(name).All() {
				n += t.Len()
			}
			c.groups, c.all = append(c.groups, api.Group{Name: name, Resources: n}), c.all+n
		}
	}
	return slices.Clone(c.groups), c.all
}

// config returns the served configuration, for status.
func (s *Server) config() (c api.Config) {
	now := s.store.Snapshot()
	if s.o.Files != nil {
		c = wiring.FilesConfig(s.store, s.o.Files)
		c.Rejected, _ = s.rejected()
	}
	all, resources := s.counted.of(now)
	c.Groups, c.Resources, c.Revision, c.Earlier = len(all), resources, now.Seq(), s.parts.Earlier()
	if newest, ok := s.store.Newest(); ok {
		c.Revision, c.At = newest.Seq, &newest.Time
	}
	return c
}

// groups returns the groups of the store, for the admin API.
func (s *Server) groups() []api.Group {
	all, _ := s.counted.of(s.store.Snapshot())
	if s.o.Files == nil {
		return all
	}
	_, rejected := s.rejected()
	for i := range all {
		_, all[i].Place = s.o.Files.Rule(all[i].Name)
		for _, r := range rejected {
			if r.Group == all[i].Name {
				all[i].Rejected = &r
			}
		}
	}
	return all
}

// rejected returns the rejected load of the files; nil: accepted. If only some groups were rejected, it returns these.
func (s *Server) rejected() (*api.Rejected, []api.Rejected) {
	since, err := s.o.Files.LoadError()
	kept, partly := errors.AsType[dir.RejectedGroups](err)
	switch {
	case err == nil:
		return nil, nil
	case !partly:
		return &api.Rejected{Since: since, Errors: wiring.ProblemsOf(err)}, nil
	}
	var all []api.Rejected
	for _, g := range kept {
		all = append(all, api.Rejected{Group: g.Group, Since: since, Errors: wiring.ProblemsOf(g.Err)})
	}
	return nil, all
}

// reload loads the files on behalf of an operator.
func (s *Server) reload(ctx context.Context, approve bool) api.Reload {
	if s.o.Files == nil {
		return api.Reload{Errors: []string{"this program has no files to load: it fills its store itself"}}
	}
	return wiring.ReloadAnswer(wiring.Reload(ctx, s.o.Files, approve))
}

// A bell is an observer that reports responses. A new commit usually causes one.
type bell struct{ sent chan<- struct{} }

func (bell) Opened(*server.Stream)        {}
func (bell) Closed(*server.Stream, error) {}
func (bell) CodesOnly()                   {}

func (b bell) Event(_ *server.Stream, e protocol.Event) {
	if e.Kind != protocol.Sent {
		return
	}
	select {
	case b.sent <- struct{}{}:
	default:
	}
}

// A progress is what follow has seen.
type progress struct {
	commit    uint64
	regrouped time.Time // when the tracker last read the groups of nodes again
	changed   bool      // a commit since then may have changed the groups of nodes
	rejected  string    // the errors of the rejected load of the files
}

const (
	lookEvery    = 200 * time.Millisecond // interval of looks without a response
	regroupEvery = 5 * time.Second        // a transaction may choose other groups for nodes (store.Tx.Select)
)

// follow looks for new commits and loads until ctx is done.
func (s *Server) follow(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		began := time.Now()
		s.look(began)
		// A search in many new resources takes long. At most a twentieth of a core is for looks.
		pause := time.NewTimer(20 * time.Since(began))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-s.sent:
		case <-tick.C:
		}
	}
}

// look records new commits and rejected loads, and their secrets.
func (s *Server) look(now time.Time) {
	s.redactor.search(now)
	p := &s.seen
	if newest, ok := s.store.Newest(); ok && newest.Seq > p.commit {
		s.noteCommits()
		p.commit, p.changed = newest.Seq, true
	}
	if p.changed && now.Sub(p.regrouped) >= regroupEvery {
		s.parts.Tracker.GroupsChanged()
		p.regrouped, p.changed = now, false
	}
	if s.o.Files == nil {
		return
	}
	text := ""
	if r, _ := s.rejected(); r != nil {
		text = wiring.Clipped(r.Errors)
		if text != p.rejected {
			s.parts.Tracker.Note(api.Event{At: r.Since, Kind: "reject", Count: len(r.Errors), Text: text})
		}
	}
	p.rejected = text
}

// noteCommits records one event for the commits since the last look: a program may commit often.
func (s *Server) noteCommits() {
	e := api.Event{Kind: "commit"}
	for _, c := range s.store.Log() {
		if c.Seq <= s.seen.commit || len(c.Changes) == 0 {
			continue
		}
		e.At, e.Version = c.Time, strconv.FormatUint(c.Seq, 10)
		for _, ch := range c.Changes {
			e.Count += ch.Set
			e.Removed += ch.Removed
		}
	}
	if e.Version != "" {
		s.parts.Tracker.Note(e)
	}
}
