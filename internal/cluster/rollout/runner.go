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
	pause = 250 * time.Millisecond // between two looks, while a rollout is under way
	idle  = 10 * time.Second       // while none is
	again = time.Second            // between two tries to get the lease
)

// A Look is how the clients of some lanes stand on this server.
type Look struct {
	Picked, Acked, Refused, Waiting int
	// Refusals are those of clients that were well, and began to refuse something since a time or later; they may have left.
	Refusals []Refusal
}

// A Runner says on each server how the clients stand that a rollout has picked; on the one that has a lease it also
// decides what comes next. Make it by [New], and have it [Runner.Run].
type Runner struct {
	engine revisions.Engine
	repo   *revisions.Repository
	server string
	log    *slog.Logger
	look   func(lanes []string, since time.Time) Look // of any goroutine

	bell chan struct{} // with one slot
	back atomic.Pointer[[]*State]

	mu       sync.Mutex        // held for memory only
	state    revisions.State   // that is served
	lanes    map[string]*lanes // by ID, that are served
	rejected string            // why the newest is not served
	failing  revisions.State   // of that
}

// lanes are those of a rollout that this server serves.
type lanes struct {
	names []string
	step  int
	since time.Time // of the first step, from before anybody was told
	seen  int       // how many clients were there when they were picked
	first *Refusal  // that counts; it stays
}

// New returns a runner of a server, whose name is a word of a key that no other has. Look says how the clients stand that see one of some groups; it may be
// called by several goroutines at once.
func New(e revisions.Engine, repo *revisions.Repository, server string, log *slog.Logger, look func(lanes []string, since time.Time) Look) *Runner {
	return &Runner{engine: e, repo: repo, server: server, log: log, look: look, bell: make(chan struct{}, 1), lanes: map[string]*lanes{}}
}

// Served notes which holds are served, and since when, which is from before any client was told of them. It is to be called at once, for it
// looks who is there, and waits for nobody; by one goroutine at a time.
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
			if l.since = was.since; was.step == l.step {
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
		if was := r.lanes[id]; was != nil { // it may have been found meanwhile
			l.first = was.first
		}
	}
	r.state, r.lanes, r.rejected = state, is, ""
	r.ring()
}

// Rejected notes that a state is not served, and why.
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

// Run runs until ctx is done.
func (r *Runner) Run(ctx context.Context) {
	if _, ok := r.engine.(revisions.Announcer); !ok {
		return
	}
	d := driver{Runner: r, steps: map[string]step{}}
	defer d.release()
	says := map[string]*saying{}
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		for _, s := range says {
			s.stop()
		}
	}()
	for {
		began := time.Now()
		holds, head := d.holds(ctx)
		for id := range holds {
			if says[id] == nil {
				says[id] = r.say(ctx, &running, id)
			}
			says[id].set(r.evidence(id))
		}
		for id, s := range says {
			if holds[id] == nil {
				s.stop()
				delete(says, id)
			}
		}
		d.drive(ctx, holds, head)
		d.lookBack(ctx)
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
		if t.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// A saying has evidence announced.
type saying struct {
	stop   func()
	values chan []byte // with one slot
	last   []byte
	lost   atomic.Bool // it has to be announced anew
}

func (r *Runner) say(ctx context.Context, running *sync.WaitGroup, id string) *saying {
	ctx, stop := context.WithCancel(ctx)
	s := &saying{stop: stop, values: make(chan []byte, 1)}
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

// set has the newest announced, if it is another.
func (s *saying) set(e Evidence) {
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

// evidence is what this server says of a rollout.
func (r *Runner) evidence(id string) Evidence {
	r.mu.Lock()
	e := Evidence{Server: r.server, Turns: r.state.Turns}
	if r.rejected != "" && r.failing.Turns > r.state.Turns { // it is what groups are held at that cannot be served
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
	if l = r.lanes[id]; l == nil {
		return e
	}
	if l.first == nil && len(look.Refusals) > 0 {
		first := look.Refusals[0]
		first.Node, first.Name, first.Cause = textutil.Head(first.Node, maxCause), textutil.Head(first.Name, maxCause), textutil.Head(first.Cause, maxCause)
		l.first = &first
	}
	e.Refusal = l.first
	return e
}

// A driver decides, while it has the lease. It is used by the goroutine of Run alone.
type driver struct {
	*Runner
	held  context.Context // nil: it has no lease
	free  func()
	steps map[string]step
	backs backs
	tried time.Time // when it was to be had last
	said  string    // the last error, which is said once
}

// A step is since when one is good.
type step struct {
	number int
	since  time.Time // by this server's clock: who takes over begins anew; zero: it is not good
}

func (d *driver) release() {
	if d.held != nil {
		d.free()
		d.held = nil
		clear(d.steps)
	}
}

// holds returns the rollouts that are under way: for who decides, those that the head has, with its state.
func (d *driver) holds(ctx context.Context) (map[string]*revisions.Next, revisions.State) {
	all := map[string]*revisions.Next{}
	d.mu.Lock()
	for id := range d.lanes {
		all[id] = &revisions.Next{}
	}
	look := d.held != nil || d.rejected != ""
	d.mu.Unlock()
	if !look { // the source looks, and rings
		return all, revisions.State{}
	}
	head, holds, err := d.repo.HoldsWithState(ctx)
	if d.tell(ctx, "", err) {
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

// tell tells an error, once, and reports whether there is one.
func (d *driver) tell(ctx context.Context, id string, err error) bool {
	if err == nil || ctx.Err() != nil {
		return err != nil
	}
	if text := id + err.Error(); text != d.said {
		d.said = text
		d.log.Warn("rollout waits: the store does not answer, or refuses", "rollout", id, "error", err)
	}
	return true
}

// drive decides about all rollouts, if it is this server that does.
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
		if errors.Is(err, revisions.ErrBusy) || d.tell(ctx, "", err) {
			return
		}
		d.held, d.free = held, free
		d.log.Info("this server drives rollouts", "rollouts", slices.Sorted(maps.Keys(all)))
		return // the next look is at the head
	}
	if head.Number == 0 {
		return
	}
	for id, next := range all {
		d.tell(ctx, id, d.decide(d.held, id, next, head))
	}
	maps.DeleteFunc(d.steps, func(id string, _ step) bool { return all[id] == nil })
}

// decide decides about one.
func (d *driver) decide(ctx context.Context, id string, next *revisions.Next, head revisions.State) error {
	s, err := Read(ctx, d.engine, id)
	if err != nil {
		return err
	}
	if s.Phase.Ended() || s.Step != next.Step { // whoever decided that has not finished
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
			return nil // somebody has changed it: the next look shows what
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
