// Package rollout takes frozen groups of a store from one revision to another step by step: some nodes are served the new
// revision first, then more, and all the old one again as soon as one of them refuses it. What is decided is in the
// store, so any server goes on where another has ended ([Runner]); who is served what is decided where it always is,
// by the rules of groups, which read the holds of the head (docs/rollouts.md).
package rollout

import (
	"bytes"
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
	maxWord   = 256 // bytes of a label, or a group
	maxEnded  = 20  // rollouts that are remembered when they have ended

	maxPick  = 4 << 10   // bytes of a step as it is stored: it is in each later step, and in the head once for each group
	maxHolds = 512 << 10 // bytes of all holds: an etcd takes a request of 1.5 MiB, which has the head that was, and the next
)

// A Phase is how far a rollout is.
type Phase string

// The phases. The last three are for ever.
const (
	Running    Phase = "running"
	Paused     Phase = "paused"      // the step stays as it is; who refuses it still ends the rollout
	Done       Phase = "done"        // all are served the new revision
	RolledBack Phase = "rolled back" // all are served the old one again: something went wrong
	Aborted    Phase = "aborted"     // all are served the old one again: somebody wanted it
)

// Ended reports whether nothing will change any more.
func (p Phase) Ended() bool { return p != Running && p != Paused }

// A State is a rollout as it is stored, at rollout/ID. It is compare-and-swapped; what it says of who is served what
// becomes true with the holds of the head ([Settle]).
type State struct {
	Format   int                         `json:"format"`
	ID       string                      `json:"id"`
	Number   revisions.Number            `json:"number"`   // the revision that it goes to
	From     map[string]revisions.Number `json:"from"`     // what its groups are frozen at
	Steps    []revisions.Pick            `json:"steps"`    // each has in it who was picked before
	Bake     time.Duration               `json:"bake"`     // how long a step is good before the next, in nanoseconds
	MinAcked float64                     `json:"minAcked"` // which share of those picked must have accepted what they were told, in %
	Author   string                      `json:"author"`
	Message  string                      `json:"message"`
	Began    time.Time                   `json:"began"`

	Phase   Phase     `json:"phase"`
	Step    int       `json:"step"`  // that is in force, from 0
	Since   time.Time `json:"since"` // of phase and step, by the clock of who decided it
	Why     string    `json:"why,omitempty"`
	By      string    `json:"by,omitempty"`      // who wanted phase and step; "": the rollout went on by itself, or a server has noted it that is older
	Refusal *Refusal  `json:"refusal,omitempty"` // that ended it

	Newest revisions.Number `json:"newest,omitempty"` // revision, when it was rolled back; 0: nobody has noted it

	raw []byte // as it is stored; nil: it is not
}

// A Refusal is that of a client that had accepted what it was told before.
type Refusal struct {
	Node  string `json:"node"`
	Type  string `json:"type"`           // its short name
	Name  string `json:"name,omitempty"` // of the resource, if the client says it
	Cause string `json:"cause"`          // without secrets
}

func (r *Refusal) String() string {
	what := r.Type
	if r.Name != "" {
		what += " " + r.Name
	}
	return fmt.Sprintf("node %s refuses %s: %s", r.Node, what, r.Cause)
}

// Groups are those that it is of, sorted.
func (s *State) Groups() []string { return slices.Sorted(maps.Keys(s.From)) }

// Say says who is picked.
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

// Check returns what is wrong with what is asked for; it adds the last step, which is all.
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
			return errors.New("a step of nobody")
		case len(p.Labels) > 0 && last.Labels != nil && !maps.Equal(p.Labels, last.Labels):
			return errors.New("labels in two steps: who has those of the first would not be in the second")
		case len(p.Labels) > maxLabels:
			return fmt.Errorf("%d labels: at most %d are allowed", len(p.Labels), maxLabels)
		}
		for k, v := range p.Labels {
			if k == "" || len(k) > maxWord || len(v) > maxWord {
				return fmt.Errorf("a label has 1 to %d bytes, and its value as many", maxWord)
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
			return fmt.Errorf("a step of %d bytes, with what those before have: at most %d are allowed", len(b), maxPick)
		}
		last = *p
	}
	if last.Percent < 100 {
		last.Percent = 100
		s.Steps = append(s.Steps, last)
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
		return nil, fmt.Errorf("rollout %s: not what a Chancery writes: %w", id, revisions.ErrDamaged)
	}
	if s.Format > format {
		return nil, fmt.Errorf("rollout %s: %w", id, revisions.ErrNewer)
	}
	if len(s.Steps) == 0 || s.Step < 0 || s.Step >= len(s.Steps) {
		return nil, fmt.Errorf("rollout %s: it is at no step: %w", id, revisions.ErrDamaged)
	}
	return s, nil
}

// All returns all rollouts that are remembered, the newest first. Those that cannot be read are in the error.
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

// write stores what has changed; [revisions.ErrConflict]: somebody else has changed it.
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

// Change changes a rollout by f, as often as somebody else changes it meanwhile, and has it in force.
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
		if err = s.write(ctx, e); err == nil {
			return s, s.Settle(ctx, repo)
		}
		if !errors.Is(err, revisions.ErrConflict) {
			return nil, err
		}
	}
}

// Turn sets phase and step, and why.
func (s *State) Turn(now time.Time, p Phase, step int, why string) {
	s.Phase, s.Step, s.Since, s.Why, s.By = p, step, now, why, ""
}

// Go takes it to its next step, or its end.
func (s *State) Go(now time.Time, why string) {
	if s.Step+1 < len(s.Steps) {
		s.Turn(now, Running, s.Step+1, why)
	} else {
		s.Turn(now, Done, s.Step, why)
	}
}

// Abandon takes back a rollout of which nobody can read the state any more: all are served what its groups are frozen at. It reports
// whether there was one.
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

// ErrGone says that the groups of a rollout are not held as they were when it began.
var ErrGone = errors.New("its groups are not frozen as they were when it began")

// Settle has the head say what the rollout says, unless it says something newer: who decides nothing more may be slow.
func (s *State) Settle(ctx context.Context, repo *revisions.Repository) error {
	return repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error { return s.settle(holds) })
}

// fits is an error if the head cannot say what the rollout is about to say: that is asked before it is written, for else the two
// would differ. A head that gets smaller always can.
func (s *State) fits(ctx context.Context, repo *revisions.Repository) error {
	_, holds, err := repo.HoldsWithState(ctx)
	if err != nil {
		return err
	}
	was := size(holds)
	if err := s.settle(holds); err != nil {
		return err
	}
	return fit(was, holds)
}

func fit(was int, holds map[string]revisions.Hold) error {
	if n := size(holds); n > maxHolds && n > was {
		return cannot("what is said of %d frozen groups would have %d bytes, at most %d may be: shorter messages, and fewer groups at once, need less", len(holds), n, maxHolds)
	}
	return nil
}

// size is about how many bytes holds have in the head.
func size(holds map[string]revisions.Hold) int {
	const hashes = 160          // of two revisions
	b, _ := json.Marshal(holds) // nothing in it cannot be encoded
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
			continue // whoever is late changes nothing
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

// A BusyError says that another rollout of a group is under way.
type BusyError struct{ Group, Rollout string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("rollout %s of group %s is under way", e.Rollout, e.Group)
}

// Is makes a BusyError an [revisions.ErrConflict].
func (e *BusyError) Is(target error) bool { return target == revisions.ErrConflict }

// Start begins a rollout to a revision, of the groups that are given, or of all frozen ones in which it differs from what
// is served.
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
			return cannot("group %s is not frozen, and what is committed to it is served by all at once: chancery freeze %s comes first, then apply", group, group)
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
			return cannot("%s changes group.yaml of group %s, and so who gets it: that is no step of a rollout. Commit it by itself, and chancery freeze %s --at that revision", s.Number, group, group)
		}
		s.From[group] = h.Number
	}
	if len(s.From) == 0 {
		p := cannot("no frozen group differs in %s: nothing is to be rolled out", s.Number)
		if len(holds) == 0 {
			p.Hint = "no group is frozen, and what is committed is served by all at once: chancery freeze GROUP comes first, then apply"
		}
		return p
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
		if !errors.Is(err, revisions.ErrUnknown) { // else it may be under way
			_ = e.Delete(ctx, prefix+s.ID)
		}
		return err
	}
	return nil
}

// missing is an error if a group that is meant, of those that go to the revision or of a step, is none of those that are
// there: a step of a group that is misspelled would pick nobody, and the time alone would decide.
func (s *State) missing(groups, there []string) error {
	for _, g := range slices.Concat(groups, s.Steps[len(s.Steps)-1].Groups) {
		if !slices.Contains(there, g) {
			slices.Sort(there)
			return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("there is no group %q in %s, nor in what is served now", g, s.Number), Hint: "the groups are " + some(slices.Compact(there))}
		}
	}
	return nil
}

func cannot(format string, args ...any) *revisionapi.Problem {
	return &revisionapi.Problem{Is: revisionapi.ErrCannot, Text: fmt.Sprintf(format, args...)}
}

// enter has the head say that the rollout is under way.
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

// difference reports whether a group differs in two revisions, and whether who gets it does.
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

// forget removes the oldest that have ended.
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
		if ended++; ended > maxEnded {
			if err := e.Delete(ctx, prefix+s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
