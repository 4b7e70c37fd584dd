package client

import (
	"context"
	"net/http"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Freeze asks POST /api/v1/groups/{group}/freeze.
func (c *Client) Freeze(ctx context.Context, group string, r api.FreezeRequest) (*api.Freeze, error) {
	return ask[api.Freeze](ctx, c, http.MethodPost, root+"/groups/"+api.Segment(group)+"/freeze", nil, r)
}

// Unfreeze asks POST /api/v1/groups/{group}/unfreeze.
func (c *Client) Unfreeze(ctx context.Context, group string, n api.NoteRequest) (*api.Freeze, error) {
	return ask[api.Freeze](ctx, c, http.MethodPost, root+"/groups/"+api.Segment(group)+"/unfreeze", nil, n)
}

// Rollouts asks GET /api/v1/rollouts[/{id}].
func (c *Client) Rollouts(ctx context.Context, id string) (*api.RolloutList, error) {
	path := root + "/rollouts"
	if id != "" {
		path += "/" + api.Segment(id)
	}
	return ask[api.RolloutList](ctx, c, http.MethodGet, path, nil, nil)
}

// StartRollout asks POST /api/v1/rollouts.
func (c *Client) StartRollout(ctx context.Context, r api.RolloutRequest) (*api.RolloutList, error) {
	return ask[api.RolloutList](ctx, c, http.MethodPost, root+"/rollouts", nil, r)
}

// ChangeRollout asks POST /api/v1/rollouts/{id}/{change}: "promote", "pause", "resume" or "abort".
func (c *Client) ChangeRollout(ctx context.Context, id, change string, n api.NoteRequest) (*api.RolloutList, error) {
	return ask[api.RolloutList](ctx, c, http.MethodPost, root+"/rollouts/"+api.Segment(id)+"/"+change, nil, n)
}
