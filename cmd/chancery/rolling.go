package main

import (
	"errors"
	"slices"
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
	d.rollouts = rollout.New(e, d.replicas.id, d.log, func(lanes []string, since time.Time) rollout.Look { return lookAt(d.admin.tracker, lanes, since) })
}

// rolled notes what is served now. Before is a time at which nobody was told of it.
func (d *stored) rolled(before time.Time, err error) {
	d.admin.tracker.Regroup()
	d.rollouts.Served(d.repo.State(), d.repo.Holds(), before)
	if rejected, ok := errors.AsType[*repository.RejectedError](err); ok {
		d.rollouts.Rejected(rejected.State, strings.Join(problemsOf(rejected.Err), "; "))
	}
}

// maxRefusing is how many clients that refuse something are looked at closely.
const maxRefusing = 100

// lookAt says how the clients stand that see one of some groups.
func lookAt(t *status.Tracker, groups []string, since time.Time) (l rollout.Look) {
	for c := range t.Census() {
		if !slices.ContainsFunc(c.Groups, func(g string) bool { return slices.Contains(groups, g) }) {
			continue
		}
		switch l.Picked++; c.State {
		case adminapi.Synced, adminapi.Idle:
			l.Acked++
		case adminapi.Nacked:
			l.Refused++
		default:
			l.Waiting++
		}
	}
	if l.Refused == 0 {
		return l
	}
	for _, group := range groups {
		for _, c := range t.Clients(status.Filter{Group: group, States: []adminapi.State{adminapi.Nacked}, Limit: maxRefusing}).Items {
			for _, u := range c.Types {
				// Who has accepted nothing of the type, or refused it before, would have refused what others are told, too.
				if u.Nacked == nil || u.Acked == nil || u.Nacked.Since.Before(since) {
					continue
				}
				r := rollout.Refusal{Node: c.Node, Type: u.Type, Cause: u.Nacked.Error}
				if len(u.Nacked.Resources) > 0 {
					r.Name = u.Nacked.Resources[0].Name
				}
				l.Refusals = append(l.Refusals, r)
			}
		}
	}
	return l
}
