// Package rollout moves frozen groups of a store from one revision to another in steps: some nodes
// get the new revision first, then more. If a client refuses it, all nodes get the old revision
// again. The decisions are in the store. So if the server that decides stops, any other can continue
// ([Runner]). The rules of groups decide which revision a node gets: they read the holds of the head
// (docs/rollouts.md).
package rollout

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text/glob"
)

const (
	prefix    = "rollout/"
	format    = 1
	maxSteps  = 20
	maxLabels = 10
	maxWord   = 256 // maximum bytes of a label, or of a group's name
	maxEnded  = 20  // maximum number of ended rollouts in the store

	maxPick  = 4 << 10   // maximum bytes of a stored step; each later step contains it, and the head contains it once for each group
	maxHolds = 512 << 10 // maximum bytes of all holds; an etcd accepts a request of 1.5 MiB, which contains the old and the new head
)

// A Phase is the progress of a rollout.
type Phase string

// The phases. The last three are final.
const (
	Running    Phase = "running"
	Paused     Phase = "paused"      // the step stays in force; a refusal still rolls the rollout back
	Done       Phase = "done"        // all nodes get the new revision
	RolledBack Phase = "rolled back" // all nodes get the old revision again, because of a refusal or a rejection
	Aborted    Phase = "aborted"     // all nodes get the old revision again, by an operator's command
)

// Ended reports whether the phase is final.
func (p Phase) Ended() bool { return p != Running && p != Paused }

// A State is the stored form of a rollout, under the key rollout/ID. Writers compare and swap it. It
// takes effect with the holds of the head ([Settle]).
type State struct {
	Format   int                         `json:"format"`
	ID       string                      `json:"id"`
	Number   revisions.Number            `json:"number"`   // the new revision
	From     map[string]revisions.Number `json:"from"`     // the revision at which each group is frozen
	Steps    []revisions.Pick            `json:"steps"`    // each step includes the nodes of the steps before
	Bake     time.Duration               `json:"bake"`     // time for which a step must be good before the next begins, in nanoseconds
	MinAcked float64                     `json:"minAcked"` // minimum share of the picked clients that must have accepted, in %
	Author   string                      `json:"author"`
	Message  string                      `json:"message"`
	Began    time.Time                   `json:"began"`

	Phase   Phase     `json:"phase"`
	Step    int       `json:"step"`  // the step in force, from 0
	Since   time.Time `json:"since"` // start of the phase and step, by the clock of the server that decided
	Why     string    `json:"why,omitempty"`
	By      string    `json:"by,omitempty"`      // author of the phase and step; "": the rollout itself decided, or an older server
	Refusal *Refusal  `json:"refusal,omitempty"` // the refusal that ended the rollout

	Newest revisions.Number `json:"newest,omitempty"` // the newest revision when the rollout was rolled back; 0: unknown

	raw []byte // the stored text; nil: not stored
}

// A Refusal is the refusal of a client that had accepted everything before.
type Refusal struct {
	Node  string `json:"node"`
	Type  string `json:"type"`           // short name of the type
	Name  string `json:"name,omitempty"` // name of the resource, if it is known
	Cause string `json:"cause"`          // reason of the client, without secrets

	Place string   `json:"place,omitempty"` // place of the resource, if it is known
	Among []string `json:"among,omitempty"` // some resources of the refused response, if the faulty one is not known
	Of    int      `json:"of,omitempty"`    // number of resources in the refused response
}

func (r *Refusal) String() string {
	what := r.Type
	switch {
	case r.Name != "":
		what += " " + r.Name
		if r.Place != "" {
			what += " at " + r.Place
		}
	case len(r.Among) > 0:
		what = fmt.Sprintf("one of %d %s (%s)", len(r.Among), what, strings.Join(r.Among, ", "))
	case r.Of > 1: // too many to list
		what = fmt.Sprintf("one of %d %s", r.Of, what)
	}
	return fmt.Sprintf("node %s refuses %s: %s", r.Node, what, r.Cause)
}

// Groups returns the groups of the rollout, sorted.
func (s *State) Groups() []string { return slices.Sorted(maps.Keys(s.From)) }

// Say returns a text that describes the picked nodes.
func Say(p revisions.Pick) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		all = append(all, k+"="+p.Labels[k])
	}
	of := strings.Join(all, " and ")
	all = nil
	if of != "" {
		all = append(all, of)
	}
	for _, g := range p.Groups {
		all = append(all, "group "+g)
	}
	if p.Percent > 0 {
		all = append(all, fmt.Sprintf("%g %%", p.Percent))
	}
	return strings.Join(all, ", ")
}

// Check returns the first error of a request. It adds the last step, which picks all nodes.
func (s *State) Check() error {
	if err := s.checkSteps(); err != nil {
		return wrong("steps", err)
	}
	switch {
	case s.Bake < time.Second:
		return wrong("bake", errors.New("the bake time must be 1 s or more: clients need time to answer"))
	case !(s.MinAcked >= 0 && s.MinAcked <= 100):
		return wrong("min_acked", fmt.Errorf("the share that must have accepted is %g %%: want 0 to 100", s.MinAcked))
	}
	return nil
}

func (s *State) checkSteps() error {
	last := revisions.Pick{}
	if len(s.Steps) > maxSteps {
		return fmt.Errorf("%d steps: at most %d are allowed", len(s.Steps), maxSteps)
	}
	for i := range s.Steps {
		p := &s.Steps[i]
		switch {
		case p.Percent < 0 || p.Percent > 100 || p.Percent != p.Percent:
			return fmt.Errorf("a step of %g %%: want 0 to 100", p.Percent)
		case p.Percent > 0 && p.Percent <= last.Percent:
			return fmt.Errorf("a step of %g %% after one of %g %%: each has more nodes than the one before", p.Percent, last.Percent)
		case p.Percent == 0 && len(p.Labels) == 0 && len(p.Groups) == 0:
			return errors.New("a step picks no node")
		case len(p.Labels) > 0 && last.Labels != nil && !maps.Equal(p.Labels, last.Labels):
			return errors.New("labels in two steps: nodes of the first would not be in the second")
		case len(p.Labels) > maxLabels:
			return fmt.Errorf("%d labels: at most %d are allowed", len(p.Labels), maxLabels)
		}
		if err := checkWords(p); err != nil {
			return err
		}
		if p.Percent == 0 {
			p.Percent = last.Percent
		}
		if len(p.Labels) == 0 {
			p.Labels = last.Labels
		}
		p.Groups = slices.Compact(slices.Sorted(slices.Values(slices.Concat(last.Groups, p.Groups))))
		if len(p.Groups) > maxLabels {
			return fmt.Errorf("%d groups in all steps together: at most %d are allowed", len(p.Groups), maxLabels)
		}
		if b, err := json.Marshal(p); err != nil || len(b) > maxPick {
			return fmt.Errorf("a step of %d bytes, including the steps before: at most %d are allowed", len(b), maxPick)
		}
		last = *p
	}
	if last.Percent < 100 {
		last.Percent = 100
		s.Steps = append(s.Steps, last)
	}
	return nil
}

// checkWords checks the labels and groups of a step.
func checkWords(p *revisions.Pick) error {
	for k, v := range p.Labels {
		if k == "" || len(k) > maxWord || len(v) > maxWord {
			return fmt.Errorf("a label has 1 to %d bytes, its value at most as many", maxWord)
		}
		if _, err := glob.Compile(v); err != nil {
			return fmt.Errorf("label %s: %w", k, err)
		}
	}
	for _, g := range p.Groups {
		if g == "" || len(g) > maxWord {
			return fmt.Errorf("the name of a group has 1 to %d bytes", maxWord)
		}
	}
	return nil
}

// Read returns a rollout.
func Read(ctx context.Context, e revisions.Engine, id string) (*State, error) {
	b, err := e.Get(ctx, prefix+id)
	if err != nil {
		return nil, fmt.Errorf("rollout %s: %w", id, err)
	}
	s := &State{raw: b}
	if err := json.Unmarshal(b, s); err != nil || s.ID != id || s.Format < 1 {
		return nil, fmt.Errorf("rollout %s: corrupt record: %w", id, revisions.ErrDamaged)
	}
	if s.Format > format {
		return nil, fmt.Errorf("rollout %s: %w", id, revisions.ErrNewer)
	}
	if len(s.Steps) == 0 || s.Step < 0 || s.Step >= len(s.Steps) {
		return nil, fmt.Errorf("rollout %s: invalid step: %w", id, revisions.ErrDamaged)
	}
	return s, nil
}

// All returns all rollouts in the store, the newest first. The error describes those that cannot be
// read.
func All(ctx context.Context, e revisions.Engine) (all []*State, err error) {
	for key, e2 := range e.List(ctx, prefix) {
		if e2 != nil {
			return nil, e2
		}
		s, e2 := Read(ctx, e, strings.TrimPrefix(key, prefix))
		if e2 != nil {
			err = errors.Join(err, e2)
			continue
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *State) int { return b.Began.Compare(a.Began) })
	return all, err
}

// write stores the changed state; the error is [revisions.ErrConflict] after a concurrent change.
func (s *State) write(ctx context.Context, e revisions.Engine) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if bytes.Equal(b, s.raw) {
		return nil
	}
	if err := e.CompareAndSwap(ctx, prefix+s.ID, s.raw, b); err != nil {
		return err
	}
	s.raw = b
	return nil
}

// Change applies f to a rollout, and puts the result into force. After a concurrent change it applies
// f again.
func Change(ctx context.Context, e revisions.Engine, repo *revisions.Repository, id string, f func(*State) error) (*State, error) {
	for {
		s, err := Read(ctx, e, id)
		if err == nil {
			err = f(s)
		}
		if err == nil {
			err = s.fits(ctx, repo)
		}
		if err != nil {
			return nil, err
		}
		err = s.write(ctx, e)
		if err == nil {
			return s, s.Settle(ctx, repo)
		}
		if !errors.Is(err, revisions.ErrConflict) {
			return nil, err
		}
	}
}

// Turn sets the phase, the step and the reason.
func (s *State) Turn(now time.Time, p Phase, step int, why string) {
	s.Phase, s.Step, s.Since, s.Why, s.By = p, step, now, why, ""
}

// Go moves the rollout to its next step, or ends it after the last step.
func (s *State) Go(now time.Time, why string) {
	if s.Step+1 < len(s.Steps) {
		s.Turn(now, Running, s.Step+1, why)
	} else {
		s.Turn(now, Done, s.Step, why)
	}
}

// Abandon ends a rollout whose state cannot be read: all nodes get the revision at which their groups
// are frozen. It reports whether the rollout was in progress.
func Abandon(ctx context.Context, repo *revisions.Repository, id string) (was bool, err error) {
	err = repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		was = false
		for group, h := range holds {
			if h.Next != nil && h.Next.Rollout == id {
				h.Next, was = nil, true
				holds[group] = h
			}
		}
		return nil
	})
	return was, err
}

// ErrGone means that the holds of a rollout's groups have changed since it began.
var ErrGone = errors.New("the freezes of its groups have changed since it began")

// Settle puts the state of the rollout into the head. If the head already has a newer state, it does
// nothing: a server that lost the lease may be late.
func (s *State) Settle(ctx context.Context, repo *revisions.Repository) error {
	return repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error { return s.settle(holds) })
}

var errFits = errors.New("the head can have this state") // ends the trial of fits

// fits returns an error if the head cannot have the new state: the holds are too large, or the repository was
// replaced by a backup (SAFE-17). It is called before the state is stored, because the state and the head must agree. A
// change that makes the head smaller always fits.
func (s *State) fits(ctx context.Context, repo *revisions.Repository) error {
	err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		was := size(holds)
		err := s.settle(holds)
		if err == nil {
			err = fit(was, holds)
		}
		return cmp.Or(err, errFits) // an error, so SetHolds changes nothing
	})
	if errors.Is(err, errFits) {
		return nil
	}
	return err
}

func fit(was int, holds map[string]revisions.Hold) error {
	if n := size(holds); n > maxHolds && n > was {
		return cannot("the record of %d frozen groups would have %d bytes, at most %d are allowed: use shorter messages, or fewer groups at once", len(holds), n, maxHolds)
	}
	return nil
}

// size is the approximate size of holds in the head, in bytes.
func size(holds map[string]revisions.Hold) int {
	const hashes = 160          // bytes of the hashes of two revisions
	b, _ := json.Marshal(holds) // encoding cannot fail
	return len(b) + hashes*len(holds)
}

func (s *State) settle(holds map[string]revisions.Hold) error {
	for _, group := range s.Groups() {
		h, is := holds[group]
		ours := is && h.Next != nil && h.Next.Rollout == s.ID
		switch {
		case !s.Phase.Ended() && (!ours || h.Number != s.From[group]):
			return fmt.Errorf("rollout %s: group %s: %w", s.ID, group, ErrGone)
		case !ours || !s.Phase.Ended() && h.Next.Step >= s.Step:
			continue // the head has a newer state
		case !s.Phase.Ended():
			next := *h.Next
			next.Step, next.Pick = s.Step, s.Steps[s.Step]
			h.Next = &next
		case s.Phase == Done:
			h = revisions.Hold{Number: s.Number, Author: s.Author, Message: s.Message, Time: s.Since}
		default:
			h.Next = nil
		}
		holds[group] = h
	}
	return nil
}

// A BusyError means that another rollout of a group is in progress.
type BusyError struct{ Group, Rollout string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("rollout %s of group %s is under way", e.Rollout, e.Group)
}

// Is makes a BusyError a [revisions.ErrConflict].
func (e *BusyError) Is(target error) bool { return target == revisions.ErrConflict }

// Start begins a rollout of the given groups to a revision. Without groups, it takes all frozen
// groups that differ from the served revision.
func Start(ctx context.Context, e revisions.Engine, repo *revisions.Repository, s *State, groups []string) error {
	if err := s.Check(); err != nil {
		return err
	}
	now, err := repo.Serving(ctx)
	if err != nil {
		return err
	}
	to, err := repo.At(ctx, s.Number)
	if err != nil {
		return err
	}
	if err := s.choose(now, to, groups); err != nil {
		return err
	}
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails
	s.Format, s.ID, s.Phase, s.Since = format, s.Number.String()+"-"+hex.EncodeToString(random[:]), Running, s.Began
	if err := forget(ctx, e); err != nil {
		return err
	}
	if err := s.write(ctx, e); err != nil {
		return err
	}
	if err := s.enter(ctx, repo); err != nil {
		if !errors.Is(err, revisions.ErrUnknown) { // if the result is unknown, the rollout may have begun
			_ = e.Delete(ctx, prefix+s.ID)
		}
		return err
	}
	return nil
}

// choose sets From to the groups of the rollout; to is its revision. Without groups, it takes all frozen groups that
// differ from the served revision.
func (s *State) choose(now, to *revisions.Snapshot, groups []string) error {
	holds := now.Holds()
	if err := s.missing(groups, slices.Concat(groupsOf(to), groupsOf(now), slices.Collect(maps.Keys(holds)))); err != nil {
		return err
	}
	named := len(groups) > 0
	if !named {
		groups = slices.Sorted(maps.Keys(holds))
	}
	s.From = map[string]revisions.Number{}
	for _, group := range groups {
		h, is := holds[group]
		switch {
		case !is:
			return cannot("group %s is not frozen, so a commit to it is served at once: first run chancery freeze %s, then apply", group, group)
		case h.Number == s.Number:
			continue
		}
		differs, rule := difference(now.Held(h.Number), to, group)
		switch {
		case !differs && !named:
			continue
		case h.Next != nil:
			return &BusyError{group, h.Next.Rollout}
		case rule:
			return cannot("%s changes group.yaml of group %s, and so which nodes get it: a rollout cannot do that in steps. Commit that change alone, and run chancery freeze %s --at that revision", s.Number, group, group)
		}
		s.From[group] = h.Number
	}
	if len(s.From) == 0 {
		p := cannot("no frozen group differs in %s: there is nothing to roll out", s.Number)
		if len(holds) == 0 {
			p.Hint = "no group is frozen, so a commit is served at once: first run chancery freeze GROUP, then apply"
		}
		return p
	}
	return nil
}

// missing returns an error if a group of the rollout, or of a step, does not exist. Otherwise a
// misspelled group would pick no client, and only the time would decide.
func (s *State) missing(groups, there []string) error {
	for _, g := range slices.Concat(groups, s.Steps[len(s.Steps)-1].Groups) {
		if !slices.Contains(there, g) {
			slices.Sort(there)
			return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("group %q is neither in %s nor in the served configuration", g, s.Number), Hint: "the groups are " + some(slices.Compact(there))}
		}
	}
	return nil
}

func cannot(format string, args ...any) *revisionapi.Problem {
	return &revisionapi.Problem{Is: revisionapi.ErrCannot, Text: fmt.Sprintf(format, args...)}
}

// enter records in the head that the rollout has begun.
func (s *State) enter(ctx context.Context, repo *revisions.Repository) error {
	return repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		was := size(holds)
		for _, group := range s.Groups() {
			h, is := holds[group]
			switch {
			case !is || h.Number != s.From[group]:
				return fmt.Errorf("group %s: %w", group, ErrGone)
			case h.Next != nil && h.Next.Rollout != s.ID:
				return &BusyError{group, h.Next.Rollout}
			}
			h.Next = &revisions.Next{Number: s.Number, Rollout: s.ID, Pick: s.Steps[0]}
			holds[group] = h
		}
		return fit(was, holds)
	})
}

// difference reports whether a group differs in two revisions, and whether its rules differ.
func difference(a, b *revisions.Snapshot, group string) (differs, rule bool) {
	b.Since(a, func(was, is *revisions.Item) bool {
		if is == nil {
			is = was
		}
		if k := is.Key(); k.Group == group {
			differs = true
			rule = rule || k.Type == ""
		}
		return true
	})
	return differs, rule
}

// forget removes the oldest ended rollouts.
func forget(ctx context.Context, e revisions.Engine) error {
	all, err := All(ctx, e)
	if err != nil && all == nil {
		return err
	}
	ended := 0
	for _, s := range all {
		if !s.Phase.Ended() {
			continue
		}
		ended++
		if ended > maxEnded {
			if err := e.Delete(ctx, prefix+s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
