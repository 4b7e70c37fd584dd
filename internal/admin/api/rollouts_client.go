package api

import (
	"context"
	"net/http"
)

// Freeze asks POST /api/v1/groups/{group}/freeze.
func (d *Daemon) Freeze(ctx context.Context, group string, r FreezeRequest) (*Freeze, error) {
	return ask[Freeze](ctx, d, http.MethodPost, root+"/groups/"+segment(group)+"/freeze", nil, r)
}

// Unfreeze asks POST /api/v1/groups/{group}/unfreeze.
func (d *Daemon) Unfreeze(ctx context.Context, group string, n NoteRequest) (*Freeze, error) {
	return ask[Freeze](ctx, d, http.MethodPost, root+"/groups/"+segment(group)+"/unfreeze", nil, n)
}

// Rollouts asks GET /api/v1/rollouts, or for one of them.
func (d *Daemon) Rollouts(ctx context.Context, id string) (*RolloutList, error) {
	path := root + "/rollouts"
	if id != "" {
		path += "/" + segment(id)
	}
	return ask[RolloutList](ctx, d, http.MethodGet, path, nil, nil)
}

// StartRollout asks POST /api/v1/rollouts.
func (d *Daemon) StartRollout(ctx context.Context, r RolloutRequest) (*RolloutList, error) {
	return ask[RolloutList](ctx, d, http.MethodPost, root+"/rollouts", nil, r)
}

// ChangeRollout asks POST /api/v1/rollouts/{id}/{change}: "promote", "pause", "resume" or "abort".
func (d *Daemon) ChangeRollout(ctx context.Context, id, change string, n NoteRequest) (*RolloutList, error) {
	return ask[RolloutList](ctx, d, http.MethodPost, root+"/rollouts/"+segment(id)+"/"+change, nil, n)
}
