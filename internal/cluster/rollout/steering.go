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

// A Steering does what people want about which revision is served of a group, in the words of the admin API. A command does it with a
// store itself, and a server for those who ask it, so that both say the same. Who asks is in the requests. What cannot be done as it is asked for
// is a [ledger.Problem]; other errors are those of the store.
type Steering struct {
	Engine revisions.Engine
	Repo   *revisions.Repository
}

// Freeze has a group served as it is in a revision. One that is frozen already goes to another only if that is named: else what somebody holds
// back would be released by who does not know of it.
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

// frozen is the error of a group that is frozen already.
func frozen(group string, h revisions.Hold) error {
	return &revisionapi.Problem{
		Is: revisions.ErrConflict, Text: fmt.Sprintf("group %.100s is frozen already, %s", group, revisionapi.Held(revisionapi.Hold(group, h))),
		Hint: fmt.Sprintf("with --at %s it stays as it is, with --at head what is held back is served, and chancery unfreeze %.100s ends it", h.Number, group),
	}
}

// noteHold notes what a group was frozen at before.
func noteHold(done *api.Freeze, group string, h revisions.Hold, is bool) {
	if done.Was, done.Before = "", nil; is {
		done.Was, done.Before = h.Number.String(), new(revisionapi.Hold(group, h))
	}
}

// Unfreeze has the newest revision of a group served again.
func (s Steering) Unfreeze(ctx context.Context, group string, note api.NoteRequest) (*api.Freeze, error) {
	if err := checkNote(note.Author, note.Message); err != nil {
		return nil, err
	}
	done := &api.Freeze{APIVersion: api.Version, Kind: api.KindFreeze, Group: group}
	return done, s.Repo.SetHolds(ctx, func(newest revisions.Number, holds map[string]revisions.Hold) error {
		was, is := holds[group]
		if !is {
			return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("group %.100s is not frozen", group), Hint: "chancery history says which are"}
		}
		done.Revision = newest.String()
		noteHold(done, group, was, is)
		holds[group] = revisions.Hold{Author: note.Author, Message: note.Message, Time: time.Now()}
		return underWay(group, was)
	})
}

// Rollouts returns those that are remembered, the newest first, or the one with an ID.
func (s Steering) Rollouts(ctx context.Context, id string) (*api.RolloutList, error) {
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

// StartRollout begins one.
func (s Steering) StartRollout(ctx context.Context, req api.RolloutRequest) (*api.RolloutList, error) {
	st := &State{Author: req.Author, Message: req.Message, Bake: 5 * time.Minute, MinAcked: 95, Began: time.Now()}
	var err error
	if st.Number, err = number(req.Revision); err == nil && st.Number == 0 {
		err = wrong("revision", errors.New("is missing: which one do the groups go to?"))
	}
	if err == nil && req.Bake != "" {
		if st.Bake, err = time.ParseDuration(req.Bake); err != nil {
			err = wrong("bake", errors.New("want a duration such as 5m"))
		}
	}
	if err == nil && len(req.Steps) == 0 {
		err = wrong("steps", errors.New("there is none: who comes first?"))
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
	if err := known(Start(ctx, s.Engine, s.Repo, st, req.Of)); err != nil {
		return nil, err
	}
	return s.list(ctx, st)
}

// changes are those of a rollout that is under way.
var changes = map[string]func(s *State, now time.Time, why string){
	"promote": (*State).Go,
	"pause":   func(s *State, now time.Time, why string) { s.Turn(now, Paused, s.Step, why) },
	"resume":  func(s *State, now time.Time, why string) { s.Turn(now, Running, s.Step, why) },
	"abort":   func(s *State, now time.Time, why string) { s.Turn(now, Aborted, s.Step, why) },
}

// ChangeRollout has one go to its next step, pause, go on, or go back.
func (s Steering) ChangeRollout(ctx context.Context, id, change string, note api.NoteRequest) (*api.RolloutList, error) {
	f := changes[change]
	if f == nil {
		return nil, wrong("change", fmt.Errorf("%q is none: want promote, pause, resume or abort", change))
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

// idForm is that of an ID: others are no words of a key, or longer than one may be.
var idForm = regexp.MustCompile(`^r[0-9]{1,20}-[0-9a-f]{1,64}$`)

func (s Steering) change(ctx context.Context, id string, f func(*State) error) (*State, error) {
	if !idForm.MatchString(id) {
		return nil, revisions.ErrNotFound
	}
	return Change(ctx, s.Engine, s.Repo, id, f)
}

func (s Steering) read(ctx context.Context, id string) (st *State, err error) {
	if err = revisions.ErrNotFound; idForm.MatchString(id) {
		st, err = Read(ctx, s.Engine, id)
	}
	return st, s.unknown(ctx, id, err)
}

// gone reports whether an error is that there is nothing with an ID.
func gone(err error) bool {
	_, told := errors.AsType[*revisionapi.Problem](err)
	return !told && errors.Is(err, revisions.ErrNotFound)
}

// unknown has the error of an ID that no rollout has say which there are.
func (s Steering) unknown(ctx context.Context, id string, err error) error {
	if !gone(err) {
		return err
	}
	hint := "there is none"
	var ids []string
	all, _ := All(ctx, s.Engine) // those that can be read
	for _, st := range all {
		ids = append(ids, fmt.Sprintf("%s (%s)", st.ID, st.Phase))
	}
	if ids != nil {
		hint = "there are " + some(ids)
	}
	return &revisionapi.Problem{Is: revisions.ErrNotFound, Text: fmt.Sprintf("no rollout has the ID %.100q", id), Hint: hint}
}

// known has an error of a rollout say what it is, if it is none of the store.
func known(err error) error {
	if busy, is := errors.AsType[*BusyError](err); is {
		return &revisionapi.Problem{Is: revisions.ErrConflict, Text: err.Error(), Hint: "chancery rollout abort " + busy.Rollout + " ends it"}
	}
	if errors.Is(err, ErrGone) {
		return &revisionapi.Problem{Is: revisions.ErrConflict, Text: err.Error(), Hint: "chancery history says what they are frozen at"}
	}
	return err
}

// underWay is an error if a rollout of a group is.
func underWay(group string, h revisions.Hold) error {
	if h.Next == nil {
		return nil
	}
	return known(&BusyError{group, h.Next.Rollout})
}

// list is rollouts in the words of the API, with how clients take those that have not ended.
func (s Steering) list(ctx context.Context, all ...*State) (*api.RolloutList, error) {
	items := []api.Rollout{}
	var head *revisions.State // read once, if one is under way
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

// groupsOf are the groups in a revision, by name.
func groupsOf(s *revisions.Snapshot) []string {
	all := map[string]bool{groups.Default: true}
	for it := range s.All {
		all[it.Group] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// some is a list for people, who read the first of many.
func some(all []string) string {
	const most = 30
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, ", ")
}

// number reads one of a revision; 0: none is given.
func number(text string) (n revisions.Number, err error) {
	if text != "" {
		if n, err = revisions.ParseNumber(text); err == nil && n == 0 {
			err = fmt.Errorf("%q is no revision: the first is r1", text)
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

// maxNote is how many bytes each text of a note has at most: it comes into the head.
const maxNote = 500

func checkNote(author, message string) error {
	switch {
	case len(message) > maxNote:
		return wrong("message", fmt.Errorf("it has %d bytes: at most %d are allowed", len(message), maxNote))
	case len(author) > maxNote:
		return wrong("author", fmt.Errorf("with who is known to ask it has %d bytes (%.40s…): at most %d are allowed", len(author), author, maxNote))
	}
	return nil
}
