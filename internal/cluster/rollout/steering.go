package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// A Steering freezes groups and controls rollouts, with the types of the admin API. A command uses it
// with a store, and a server uses it for its callers. So both give the same results. The author is in
// the requests. A refused request is a [revisionapi.Problem]; other errors are those of the store.
type Steering struct {
	Engine revisions.Engine
	Repo   *revisions.Repository
}

// Freeze makes the servers serve a group from a fixed revision. If the group is already frozen, the
// request must name the revision. Otherwise a caller that does not know of the freeze would serve the
// changes that are held back.
func (s Steering) Freeze(ctx context.Context, group string, req api.FreezeRequest) (*api.Freeze, error) {
	named := req.Revision
	if named == "head" {
		req.Revision = ""
	}
	n, err := number(req.Revision)
	if err == nil {
		err = checkNote(req.Author, req.Message)
	}
	if err != nil {
		return nil, err
	}
	at, err := revisionapi.At(ctx, s.Repo, n)
	if err != nil {
		return nil, err
	}
	n = at.Revision.Number
	if all := groupsOf(at); !slices.Contains(all, group) {
		return nil, &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("%s has no group %.100q", n, group), Hint: "the groups are " + some(all)}
	}
	done := &api.Freeze{APIVersion: api.Version, Kind: api.KindFreeze, Group: group, Revision: n.String()}
	return done, s.Repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		was, is := holds[group]
		noteHold(done, group, was, is)
		if err := underWay(group, was); err != nil {
			return err
		}
		if is && named == "" {
			return frozen(group, was)
		}
		holds[group] = revisions.Hold{Number: n, Author: req.Author, Message: req.Message, Time: time.Now()}
		return nil
	})
}

// frozen is the error of a group that is already frozen.
func frozen(group string, h revisions.Hold) error {
	return &revisionapi.Problem{
		Is: revisions.ErrConflict, Text: fmt.Sprintf("group %.100s is frozen already, %s", group, revisionapi.Held(revisionapi.Hold(group, h))),
		Hint: fmt.Sprintf("--at %s keeps it as it is, --at head serves the newest revision, and chancery unfreeze %.100s ends the freeze", h.Number, group),
	}
}

// noteHold records the earlier hold of a group in the answer.
func noteHold(done *api.Freeze, group string, h revisions.Hold, is bool) {
	done.Was, done.Before = "", nil
	if is {
		done.Was, done.Before = h.Number.String(), new(revisionapi.Hold(group, h))
	}
}

// Unfreeze makes the servers serve a group from the newest revision again.
func (s Steering) Unfreeze(ctx context.Context, group string, note api.NoteRequest) (*api.Freeze, error) {
	if err := checkNote(note.Author, note.Message); err != nil {
		return nil, err
	}
	done := &api.Freeze{APIVersion: api.Version, Kind: api.KindFreeze, Group: group}
	return done, s.Repo.SetHolds(ctx, func(newest revisions.Number, holds map[string]revisions.Hold) error {
		was, is := holds[group]
		if !is {
			return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("group %.100s is not frozen", group), Hint: "chancery history shows the frozen groups"}
		}
		done.Revision = newest.String()
		noteHold(done, group, was, is)
		holds[group] = revisions.Hold{Author: note.Author, Message: note.Message, Time: time.Now()}
		return underWay(group, was)
	})
}

// Rollouts returns all rollouts in the store, the newest first, or the one with an ID. The records of a backup do not
// describe what servers serve, so then the error is [revisions.ErrBackwards] (SAFE-17).
func (s Steering) Rollouts(ctx context.Context, id string) (*api.RolloutList, error) {
	if err := s.Repo.Replaced(ctx); err != nil {
		return nil, err
	}
	if id == "" {
		all, err := All(ctx, s.Engine)
		if err != nil {
			return nil, err
		}
		return s.list(ctx, all...)
	}
	one, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.list(ctx, one)
}

// StartRollout begins a rollout.
func (s Steering) StartRollout(ctx context.Context, req api.RolloutRequest) (*api.RolloutList, error) {
	st := &State{Author: req.Author, Message: req.Message, Bake: 5 * time.Minute, MinAcked: 95, Began: time.Now()}
	var err error
	st.Number, err = number(req.Revision)
	if err == nil && st.Number == 0 {
		err = wrong("revision", errors.New("is missing: name the new revision"))
	}
	if err == nil && req.Bake != "" {
		st.Bake, err = time.ParseDuration(req.Bake)
		if err != nil {
			err = wrong("bake", errors.New("want a duration such as 5m"))
		}
	}
	if err == nil && len(req.Steps) == 0 {
		err = wrong("steps", errors.New("is missing: name the first nodes"))
	}
	if err == nil {
		err = checkNote(req.Author, req.Message)
	}
	if err != nil {
		return nil, err
	}
	if req.MinAcked != nil {
		st.MinAcked = *req.MinAcked
	}
	for _, p := range req.Steps {
		st.Steps = append(st.Steps, revisions.Pick(p))
	}
	if err := s.Repo.Replaced(ctx); err != nil {
		return nil, err
	}
	if err := known(Start(ctx, s.Engine, s.Repo, st, req.Of)); err != nil {
		return nil, err
	}
	return s.list(ctx, st)
}

// changes are the possible changes of a running rollout, by name.
var changes = map[string]func(s *State, now time.Time, why string){
	"promote": (*State).Go,
	"pause":   func(s *State, now time.Time, why string) { s.Turn(now, Paused, s.Step, why) },
	"resume":  func(s *State, now time.Time, why string) { s.Turn(now, Running, s.Step, why) },
	"abort":   func(s *State, now time.Time, why string) { s.Turn(now, Aborted, s.Step, why) },
}

// ChangeRollout promotes, pauses, resumes or aborts a rollout.
func (s Steering) ChangeRollout(ctx context.Context, id, change string, note api.NoteRequest) (*api.RolloutList, error) {
	f := changes[change]
	if f == nil {
		return nil, wrong("change", fmt.Errorf("%q is unknown: use promote, pause, resume or abort", change))
	}
	if err := checkNote(note.Author, note.Message); err != nil {
		return nil, err
	}
	why := change + " by " + note.Author
	if note.Message != "" {
		why += ": " + note.Message
	}
	st, err := s.change(ctx, id, func(st *State) error {
		if st.Phase.Ended() {
			return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("rollout %s is %s since %s", st.ID, st.Phase, st.Since.UTC().Format(time.RFC3339)), Hint: "chancery rollout start begins another"}
		}
		f(st, time.Now(), why)
		st.By = note.Author
		return nil
	})
	if err != nil && change == "abort" && (gone(err) || errors.Is(err, revisions.ErrDamaged)) {
		if was, e := Abandon(ctx, s.Repo, id); was || e != nil {
			lost := api.Rollout{ID: id, Phase: string(Aborted), Why: why}
			return listOf([]api.Rollout{lost}), e
		}
	}
	if err != nil {
		return nil, s.unknown(ctx, id, known(err))
	}
	return s.list(ctx, st)
}

// idForm is the form of an ID. A text of another form is too long, or not valid in a key.
var idForm = regexp.MustCompile(`^r[0-9]{1,20}-[0-9a-f]{1,64}$`)

func (s Steering) change(ctx context.Context, id string, f func(*State) error) (*State, error) {
	if !idForm.MatchString(id) {
		return nil, revisions.ErrNotFound
	}
	return Change(ctx, s.Engine, s.Repo, id, f)
}

func (s Steering) read(ctx context.Context, id string) (st *State, err error) {
	err = revisions.ErrNotFound
	if idForm.MatchString(id) {
		st, err = Read(ctx, s.Engine, id)
	}
	return st, s.unknown(ctx, id, err)
}

// gone reports whether an error means that no rollout has the ID.
func gone(err error) bool {
	_, explained := errors.AsType[*revisionapi.Problem](err)
	return !explained && errors.Is(err, revisions.ErrNotFound)
}

// unknown adds the existing IDs to the error of an unknown ID.
func (s Steering) unknown(ctx context.Context, id string, err error) error {
	if !gone(err) {
		return err
	}
	hint := "there are no rollouts"
	var ids []string
	all, _ := All(ctx, s.Engine) // only the readable rollouts
	for _, st := range all {
		ids = append(ids, fmt.Sprintf("%s (%s)", st.ID, st.Phase))
	}
	if ids != nil {
		hint = "the rollouts are " + some(ids)
	}
	return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("no rollout has the ID %.100q", id), Hint: hint}
}

// known turns an error about a rollout into a problem with a hint. It returns errors of the store
// unchanged.
func known(err error) error {
	if busy, is := errors.AsType[*BusyError](err); is {
		return &revisionapi.Problem{Is: revisions.ErrConflict, Text: err.Error(), Hint: "chancery rollout abort " + busy.Rollout + " ends it"}
	}
	if errors.Is(err, ErrGone) {
		return &revisionapi.Problem{Is: revisions.ErrConflict, Text: err.Error(), Hint: "chancery history shows the frozen groups"}
	}
	return err
}

// underWay returns an error if a rollout of a group is in progress.
func underWay(group string, h revisions.Hold) error {
	if h.Next == nil {
		return nil
	}
	return known(&BusyError{group, h.Next.Rollout})
}

// list returns rollouts as types of the API, with the evidence of running ones.
func (s Steering) list(ctx context.Context, all ...*State) (*api.RolloutList, error) {
	items := []api.Rollout{}
	var head *revisions.State // read at most once, and only if a rollout is running
	for _, st := range all {
		it := api.Rollout{
			ID: st.ID, Revision: st.Number.String(), From: map[string]string{}, Bake: strconv.FormatFloat(st.Bake.Seconds(), 'f', -1, 64) + "s", MinAcked: st.MinAcked,
			Author: st.Author, Message: st.Message, Began: st.Began, Phase: string(st.Phase), Step: st.Step + 1, Since: st.Since, Why: st.Why,
			Refusal: (*api.RolloutRefusal)(st.Refusal), Nodes: Say(st.Steps[st.Step]),
		}
		for group, n := range st.From {
			it.From[group] = n.String()
		}
		for _, p := range st.Steps {
			it.Steps = append(it.Steps, api.RolloutStep(p))
		}
		if !st.Phase.Ended() {
			if head == nil {
				is, _, err := s.Repo.HoldsWithState(ctx)
				if err != nil {
					return nil, err
				}
				head = &is
			}
			sum, err := Gather(ctx, s.Engine, st.ID)
			if err != nil {
				return nil, err
			}
			it.Clients, it.Acked, it.Refused, it.Waiting, it.WaitsFor = sum.Picked, sum.Acked, sum.Refused, sum.Waiting, st.Waits(sum, head.Turns)
		}
		items = append(items, it)
	}
	return listOf(items), nil
}

func listOf(items []api.Rollout) *api.RolloutList {
	return &api.RolloutList{APIVersion: api.Version, Kind: api.KindRolloutList, Items: items}
}

// groupsOf returns the groups in a revision, by name.
func groupsOf(s *revisions.Snapshot) []string {
	all := map[string]bool{groups.Default: true}
	for it := range s.All {
		all[it.Group] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// some returns a text with the first elements of a list.
func some(all []string) string {
	const most = 30
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, ", ")
}

// number parses a revision number; "" is 0.
func number(text string) (n revisions.Number, err error) {
	if text != "" {
		n, err = revisions.ParseNumber(text)
		if err == nil && n == 0 {
			err = fmt.Errorf("%q is not a revision number: the first is r1", text)
		}
		if err != nil {
			err = wrong("revision", err)
		}
	}
	return n, err
}

func wrong(field string, err error) error {
	return &revisionapi.Problem{Is: revisionapi.ErrWrong, Field: field, Text: err.Error()}
}

// maxNote limits each text of a note, in bytes, because the head contains the note.
const maxNote = 500

func checkNote(author, message string) error {
	switch {
	case len(message) > maxNote:
		return wrong("message", fmt.Errorf("it has %d bytes: at most %d are allowed", len(message), maxNote))
	case len(author) > maxNote:
		return wrong("author", fmt.Errorf("with the authenticated caller it has %d bytes (%.40s…): at most %d are allowed", len(author), author, maxNote))
	}
	return nil
}
