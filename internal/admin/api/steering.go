package api

import "context"

// A Steering freezes groups of the store and controls rollouts. The HTTP handler sets the author of
// each request to the identity that it has verified. If a request is refused, the error is a
// revisionapi.Problem. Other errors come from the store.
type Steering interface {
	Freeze(ctx context.Context, group string, req FreezeRequest) (*Freeze, error)
	Unfreeze(ctx context.Context, group string, note NoteRequest) (*Freeze, error)
	Rollouts(ctx context.Context, id string) (*RolloutList, error) // "": all rollouts in the store
	StartRollout(ctx context.Context, req RolloutRequest) (*RolloutList, error)
	ChangeRollout(ctx context.Context, id, change string, note NoteRequest) (*RolloutList, error)
}
