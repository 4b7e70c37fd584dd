package api

import "context"

// A Steering freezes groups of the store and controls rollouts. The caller sets the author of each request
// to the verified one. A request that cannot be carried out is a revisionapi.Problem; other errors come
// from the store.
type Steering interface {
	Freeze(ctx context.Context, group string, req FreezeRequest) (*Freeze, error)
	Unfreeze(ctx context.Context, group string, note NoteRequest) (*Freeze, error)
	Rollouts(ctx context.Context, id string) (*RolloutList, error) // "": all remembered rollouts
	StartRollout(ctx context.Context, req RolloutRequest) (*RolloutList, error)
	ChangeRollout(ctx context.Context, id, change string, note NoteRequest) (*RolloutList, error)
}
