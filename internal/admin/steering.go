package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/text"
)

func (s *Server) freeze(w http.ResponseWriter, r *http.Request) error {
	var in api.FreezeRequest
	if err := s.readChange(w, r, &in, &in.Message, &in.Author, checkNote); err != nil {
		return err
	}
	group := r.PathValue("group")
	if err := s.may(r.Context(), roles.Commit, group); err != nil {
		return err
	}
	done, err := s.Revisions.Steering.Freeze(r.Context(), group, in)
	return s.changed(w, "freeze of group "+text.Head(group, maxWords), in.Author, in.Message, done, err)
}

func (s *Server) unfreeze(w http.ResponseWriter, r *http.Request) error {
	var in api.NoteRequest
	if err := s.readChange(w, r, &in, &in.Message, &in.Author, checkTexts); err != nil {
		return err
	}
	group := r.PathValue("group")
	if err := s.may(r.Context(), roles.Commit, group); err != nil {
		return err
	}
	done, err := s.Revisions.Steering.Unfreeze(r.Context(), group, in)
	return s.changed(w, "unfreeze of group "+text.Head(group, maxWords), in.Author, in.Message, done, err)
}

func (s *Server) rollouts(w http.ResponseWriter, r *http.Request) error {
	if err := s.plain(r); err != nil {
		return err
	}
	list, err := s.Revisions.Steering.Rollouts(r.Context(), r.PathValue("id"))
	if err != nil {
		return ofRepository(err)
	}
	answer(w, http.StatusOK, list)
	return nil
}

func (s *Server) startRollout(w http.ResponseWriter, r *http.Request) error {
	var in api.RolloutRequest
	if err := s.readChange(w, r, &in, &in.Message, &in.Author, checkNote); err != nil {
		return err
	}
	if err := s.mayStart(r.Context(), in.Of); err != nil {
		return err
	}
	list, err := s.Revisions.Steering.StartRollout(r.Context(), in)
	what := "start of a rollout to " + in.Revision
	if err == nil {
		what = "start of rollout " + list.Items[0].ID
	}
	return s.steered(w, what, in.Author, in.Message, list, err)
}

// mayStart returns an error unless the caller may start a rollout of some groups. Without names, the rollout is of all
// frozen groups.
func (s *Server) mayStart(ctx context.Context, groups []string) error {
	if len(groups) == 0 {
		return s.mayAll(ctx, roles.Commit, "the request names no groups (of)")
	}
	return s.may(ctx, roles.Commit, groups...)
}

// maySteer returns an error unless the caller may change a rollout of its groups.
func (s *Server) maySteer(ctx context.Context, id, change string) error {
	role := roles.Commit
	if change == "pause" {
		role = roles.Operate
	}
	if callerOf(ctx).rights.HasAll(role) {
		return nil
	}
	list, err := s.Revisions.Steering.Rollouts(ctx, id)
	if err != nil {
		return ofRepository(err)
	}
	for _, one := range list.Items {
		if len(one.From) == 0 {
			return s.mayAll(ctx, role, "the groups of the rollout are unknown")
		}
		if err := s.may(ctx, role, slices.Sorted(maps.Keys(one.From))...); err != nil {
			return err
		}
	}
	return nil
}

// changeRollout returns the handler of one kind of change. Only a promotion needs a reason.
func (s *Server) changeRollout(change string) func(http.ResponseWriter, *http.Request) error {
	check := checkTexts
	if change == "promote" {
		check = checkNote
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		var in api.NoteRequest
		if err := s.readChange(w, r, &in, &in.Message, &in.Author, check); err != nil {
			return err
		}
		id := r.PathValue("id")
		if err := s.maySteer(r.Context(), id, change); err != nil {
			return err
		}
		list, err := s.Revisions.Steering.ChangeRollout(r.Context(), id, change, in)
		return s.steered(w, change+" of rollout "+text.Head(id, maxWords), in.Author, in.Message, list, err)
	}
}

// steered reports a change that the head revision does not record, and answers the request.
func (s *Server) steered(w http.ResponseWriter, what, who, message string, done any, err error) error {
	if err == nil && s.Revisions.Done != nil {
		s.Revisions.Done(what, who, message)
	}
	return s.changed(w, what, who, message, done, err)
}
