package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

const (
	lease = "rollout"
	pause = 250 * time.Millisecond // time between two looks during a rollout
	idle  = 10 * time.Second       // time between two looks without a rollout
	again = time.Second            // time between two attempts to get the lease
)

// A Look is the state of this server's clients in some lanes.
type Look struct {
	Picked, Acked, Refused, Waiting int
	// Refusals are refusals that began after a given time, by clients that were healthy before. These
	// clients may have left.
	Refusals []Refusal
}

// A Runner reports on each server about the clients that a rollout has picked. On the server with the
// lease it also decides the next step. [New] makes it; [Runner.Run] must run.
type Runner struct {
	engine revisions.Engine
	repo   *revisions.Repository
	server string
	log    *slog.Logger
	look   func(lanes []string, since time.Time) Look // safe for concurrent use

	bell chan struct{} // has one slot
	back atomic.Pointer[[]*State]

	mu       sync.Mutex        // never held during I/O
	state    revisions.State   // the served state
	lanes    map[string]*lanes // the served lanes, by rollout ID
	rejected string            // why the state failing is not served; "": the newest state is served
	failing  revisions.State   // the newest state; only if it is not served
}

// lanes are the served lanes of a rollout.
type lanes struct {
	names []string
	step  int
	since time.Time // a time before the first step was served
	seen  int       // the number of clients that were connected when they were picked
	first *Refusal  // the first refusal; a later one does not replace it
}

// New returns the runner of a server. The name of the server is unique, and valid in a key. The
// function look returns the state of the clients that get one of the given lanes. Several goroutines
// may call it at once.
func New(e revisions.Engine, repo *revisions.Repository, server string, log *slog.Logger, look func(lanes []string, since time.Time) Look) *Runner {
	return &Runner{engine: e, repo: repo, server: server, log: log, look: look, bell: make(chan struct{}, 1), lanes: map[string]*lanes{}}
}

// Served records the served holds, and a time before any client got them. Call it as soon as they are
// served, because it counts the connected clients. It does not block. Only one goroutine may call it
// at a time.
func (r *Runner) Served(state revisions.State, holds map[string]revisions.Hold, since time.Time) {
	is := map[string]*lanes{}
	for _, group := range slices.Sorted(maps.Keys(holds)) {
		n := holds[group].Next
		if n == nil {
			continue
		}
		l := is[n.Rollout]
		if l == nil {
			l = &lanes{step: n.Step, since: since, seen: -1}
			is[n.Rollout] = l
		}
		l.names = append(l.names, group+groups.LaneSuffix)
	}
	r.mu.Lock()
	for id, l := range is {
		if was := r.lanes[id]; was != nil {
			l.since = was.since
			if was.step == l.step {
				l.seen = was.seen
			}
		}
	}
	r.mu.Unlock()
	for _, l := range is {
		if l.seen < 0 {
			l.seen = r.look(l.names, l.since).Picked
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, l := range is {
		if was := r.lanes[id]; was != nil { // a refusal may have come since the first lock
			l.first = was.first
		}
	}
	r.state, r.lanes, r.rejected = state, is, ""
	r.ring()
}

// Rejected records that a state is not served, and the reason.
func (r *Runner) Rejected(state revisions.State, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing, r.rejected = state, why
	r.ring()
}

func (r *Runner) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Run reports and decides until ctx is done.
func (r *Runner) Run(ctx context.Context) {
	if _, ok := r.engine.(revisions.Announcer); !ok {
		return
	}
	d := driver{Runner: r, steps: map[string]step{}}
	defer d.release()
	reports := map[string]*report{}
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		for _, s := range reports {
			s.stop()
		}
	}()
	for {
		began := time.Now()
		holds, head := d.holds(ctx)
		for id := range holds {
			if reports[id] == nil {
				reports[id] = r.report(ctx, &running, id)
			}
			reports[id].set(r.evidence(id))
		}
		for id, s := range reports {
			if holds[id] == nil {
				s.stop()
				delete(reports, id)
			}
		}
		d.drive(ctx, holds, head)
		d.findRolledBack(ctx)
		wait := idle
		if len(holds) > 0 {
			wait = max(pause, 4*time.Since(began))
		}
		t := time.NewTimer(wait)
		select {
		case <-r.bell:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// A report announces the evidence of a rollout.
type report struct {
	stop   func()
	values chan []byte // has one slot
	last   []byte
	lost   atomic.Bool // the evidence must be announced again
}

func (r *Runner) report(ctx context.Context, running *sync.WaitGroup, id string) *report {
	ctx, stop := context.WithCancel(ctx)
	s := &report{stop: stop, values: make(chan []byte, 1)}
	running.Go(func() {
		for ctx.Err() == nil {
			if err := r.engine.(revisions.Announcer).Announce(ctx, evidencePrefix+id+"/"+r.server, s.values); err != nil {
				r.log.Warn("cannot share the answers of clients to a rollout", "rollout", id, "error", err)
			}
			s.lost.Store(true)
			select {
			case <-ctx.Done():
			case <-time.After(idle):
			}
		}
	})
	return s
}

// set announces new evidence.
func (s *report) set(e Evidence) {
	b, err := json.Marshal(e)
	if lost := s.lost.Swap(false); err != nil || !lost && bytes.Equal(b, s.last) {
		return
	}
	s.last = b
	select {
	case <-s.values:
	default:
	}
	s.values <- b
}

// evidence returns the evidence of this server about a rollout.
func (r *Runner) evidence(id string) Evidence {
	r.mu.Lock()
	e := Evidence{Server: r.server, Turns: r.state.Turns}
	if r.rejected != "" && r.failing.Turns > r.state.Turns { // the held revisions cannot be served
		e.Rejected = textutil.Head(r.rejected, maxCause)
	}
	l := r.lanes[id]
	var names []string
	var since time.Time
	if l != nil {
		names, since, e.Seen = l.names, l.since, l.seen
	}
	r.mu.Unlock()
	if l == nil {
		return e
	}
	look := r.look(names, since)
	e.Picked, e.Acked, e.Refused, e.Waiting = look.Picked, look.Acked, look.Refused, look.Waiting
	r.mu.Lock()
	defer r.mu.Unlock()
	l = r.lanes[id]
	if l == nil {
		return e
	}
	if l.first == nil && len(look.Refusals) > 0 {
		first := look.Refusals[0]
		first.Node, first.Name, first.Cause = textutil.Head(first.Node, maxCause), textutil.Head(first.Name, maxCause), textutil.Head(first.Cause, maxCause)
		first.Place = textutil.Head(first.Place, maxCause)
		first.Among = slices.Clone(first.Among[:min(len(first.Among), maxAmong)])
		for i := range first.Among {
			first.Among[i] = textutil.Head(first.Among[i], maxCause/maxAmong)
		}
		l.first = &first
	}
	e.Refusal = l.first
	return e
}

// A driver decides about rollouts while it has the lease. The goroutine of Run owns it.
type driver struct {
	*Runner
	held   context.Context // nil: the driver has no lease
	free   func()
	steps  map[string]step
	found  rolledBack
	tried  time.Time // the last attempt to get the lease
	logged string    // the last logged error, which is not logged again
}

// A step is a step of a rollout, with the time since when it is good.
type step struct {
	number int
	since  time.Time // by this server's clock, so a new leader begins again; zero: the step is not good
}

func (d *driver) release() {
	if d.held != nil {
		d.free()
		d.held = nil
		clear(d.steps)
	}
}

// holds returns the rollouts in progress. The leader reads them from the head, and also returns the
// head's state.
func (d *driver) holds(ctx context.Context) (map[string]*revisions.Next, revisions.State) {
	all := map[string]*revisions.Next{}
	d.mu.Lock()
	for id := range d.lanes {
		all[id] = &revisions.Next{}
	}
	look := d.held != nil || d.rejected != ""
	d.mu.Unlock()
	if !look { // the source watches the head, and rings the bell
		return all, revisions.State{}
	}
	head, holds, err := d.repo.HoldsWithState(ctx)
	if d.failed(ctx, "", err) {
		return all, revisions.State{}
	}
	clear(all)
	for _, h := range holds {
		if h.Next != nil {
			all[h.Next.Rollout] = h.Next
		}
	}
	return all, head
}

// failed logs an error once, and reports whether there is one.
func (d *driver) failed(ctx context.Context, id string, err error) bool {
	if err == nil || ctx.Err() != nil {
		return err != nil
	}
	if text := id + err.Error(); text != d.logged {
		d.logged = text
		d.log.Warn("rollout waits: the store does not answer, or refuses", "rollout", id, "error", err)
	}
	return true
}

// drive decides about all rollouts, if this server is the leader.
func (d *driver) drive(ctx context.Context, all map[string]*revisions.Next, head revisions.State) {
	if d.held != nil && (d.held.Err() != nil || len(all) == 0) {
		d.release()
	}
	if len(all) == 0 || d.held == nil && time.Since(d.tried) < again {
		return
	}
	if d.held == nil {
		d.tried = time.Now()
		held, free, err := d.engine.Lease(ctx, lease)
		if errors.Is(err, revisions.ErrBusy) || d.failed(ctx, "", err) {
			return
		}
		d.held, d.free = held, free
		d.log.Info("this server drives rollouts", "rollouts", slices.Sorted(maps.Keys(all)))
		return // read the head again before the first decision
	}
	if head.Number == 0 {
		return
	}
	for id, next := range all {
		d.failed(ctx, id, d.decide(d.held, id, next, head))
	}
	maps.DeleteFunc(d.steps, func(id string, _ step) bool { return all[id] == nil })
}

// decide decides about one rollout.
func (d *driver) decide(ctx context.Context, id string, next *revisions.Next, head revisions.State) error {
	s, err := Read(ctx, d.engine, id)
	if err != nil {
		return err
	}
	if s.Phase.Ended() || s.Step != next.Step { // the head does not have the latest decision yet
		return s.Settle(ctx, d.repo)
	}
	sum, err := Gather(ctx, d.engine, id)
	if err != nil {
		return err
	}
	now := time.Now()
	at := d.steps[id]
	if at.number != s.Step || !s.open(sum, head.Turns) {
		at = step{number: s.Step}
	} else if at.since.IsZero() {
		at.since = now
	}
	d.steps[id] = at
	good := time.Duration(0)
	if !at.since.IsZero() {
		good = now.Sub(at.since)
	}
	if !s.decide(now, sum, head.Turns, good) {
		return nil
	}
	if s.Phase == RolledBack {
		s.Newest = head.Number
	}
	if err := s.fits(ctx, d.repo); err != nil {
		return err
	}
	if err := s.write(ctx, d.engine); err != nil {
		if errors.Is(err, revisions.ErrConflict) {
			return nil // the state was changed concurrently: the next look shows it
		}
		return err
	}
	attrs := []any{"rollout", id, "revision", s.Number.String(), "groups", s.Groups(), "picked", sum.Picked, "acked", sum.Acked, "refused", sum.Refused}
	switch s.Phase {
	case RolledBack:
		d.log.Error("rollout was rolled back", append(attrs, "error", s.Why)...)
	case Done:
		d.log.Info("rollout is done", attrs...)
	default:
		d.log.Info("rollout reached the next step", append(attrs, "step", s.Step+1, "of", len(s.Steps), "nodes", Say(s.Steps[s.Step]))...)
	}
	return s.Settle(ctx, d.repo)
}
