package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
)

// openRollouts connects the runner of rollouts to the served revisions and to the answers of clients.
func (d *storeSource) openRollouts(e revisions.Engine) {
	d.rollouts = rollout.New(e, d.repo.Repository(), d.replicas.id, d.log, func(lanes []string, since time.Time) rollout.Look {
		return rolloutAnswers(d.view.tracker, d.view.parts.Explainer(), lanes, since)
	})
}

// noteServed reports the served revisions to the rollouts. The time before is earlier than the first
// response with these revisions.
func (d *storeSource) noteServed(before time.Time, err error) {
	d.view.tracker.GroupsChanged()
	d.rollouts.Served(d.repo.State(), d.repo.Holds(), before)
	if rejected, ok := errors.AsType[*revsource.RejectedError](err); ok {
		d.rollouts.Rejected(rejected.State, strings.Join(wiring.ProblemsOf(rejected.Err), "; "))
	}
}

// rolledBack returns the rollouts that were rolled back automatically and are still in effect: their
// groups had no freeze, commit or rollout since then.
func (d *storeSource) rolledBack() (all []api.RolledBack) {
	for _, s := range d.rollouts.RolledBack() {
		all = append(all, api.RolledBack{Rollout: s.ID, Groups: s.Groups(), Revision: s.Number.String(), Why: s.Why, Since: s.Since})
	}
	return all
}

// rolloutAnswers counts how the clients of some groups have answered since a time.
func rolloutAnswers(t *clients.Tracker, e *explain.Explainer, groups []string, since time.Time) rollout.Look {
	k := t.Acceptance(groups, since)
	l := rollout.Look{Picked: k.Clients, Acked: k.Acked, Refused: k.Refused, Waiting: k.Waiting}
	for i, f := range k.Regressions {
		r := rollout.Refusal{Node: f.Node, Type: f.Type.Short, Cause: f.Text}
		if i == 0 { // the others do not count
			r.Name, r.Place, r.Among = blamed(e, groups, f)
			r.Of = f.Of
		}
		l.Refusals = append(l.Refusals, r)
	}
	return l
}

// blameTimeout limits the search for the faulty resource of a refusal.
const blameTimeout = 2 * time.Second

// blamed returns the faulty resource of a refusal with its place, or the resources of which one is faulty.
func blamed(e *explain.Explainer, groups []string, f clients.Regression) (name, place string, among []string) {
	ctx, cancel := context.WithTimeout(context.Background(), blameTimeout)
	defer cancel()
	all := e.Suspects(ctx, f.Node, groups, f.Type, f.Text, f.Names)
	if len(all) == 1 || len(all) > 1 && all[0].Reason != "" {
		return all[0].Name, all[0].Place, nil
	}
	for _, r := range all {
		among = append(among, r.Name)
	}
	return "", "", among
}
