package main

import (
	"errors"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/rollout"
	"github.com/chancery-xds/chancery/internal/status"
	"github.com/chancery-xds/chancery/revisions"
	"github.com/chancery-xds/chancery/source/repository"
)

// rolling has rollouts know what is served of a store, and how clients take it.
func (d *stored) rolling(e revisions.Engine) {
	d.rollouts = rollout.New(e, d.repo.Repository(), d.replicas.id, d.log, func(lanes []string, since time.Time) rollout.Look { return lookAt(d.admin.tracker, lanes, since) })
}

// rolled notes what is served now. Before is a time at which nobody was told of it.
func (d *stored) rolled(before time.Time, err error) {
	d.admin.tracker.Regroup()
	d.rollouts.Served(d.repo.State(), d.repo.Holds(), before)
	if rejected, ok := errors.AsType[*repository.RejectedError](err); ok {
		d.rollouts.Rejected(rejected.State, strings.Join(problemsOf(rejected.Err), "; "))
	}
}

// rolledBack are the rollouts that were taken back, of which nobody has taken notice yet.
func (d *stored) rolledBack() (all []adminapi.RolledBack) {
	for _, s := range d.rollouts.Back() {
		all = append(all, adminapi.RolledBack{Rollout: s.ID, Groups: s.Groups(), Revision: s.Number.String(), Why: s.Why, Since: s.Since})
	}
	return all
}

// lookAt says how the clients stand that see one of some groups.
func lookAt(t *status.Tracker, groups []string, since time.Time) rollout.Look {
	k := t.Taken(groups, since)
	l := rollout.Look{Picked: k.Clients, Acked: k.Acked, Refused: k.Refused, Waiting: k.Waiting}
	for _, f := range k.Fallen {
		r := rollout.Refusal{Node: f.Node, Type: f.Type.Short, Cause: f.Text}
		if len(f.Names) > 0 {
			r.Name = f.Names[0]
		}
		l.Refusals = append(l.Refusals, r)
	}
	return l
}
