package api

import "context"

// A Steering says which revision is served of a group of the store: freezes and rollouts. The author of a request is one who is known. What
// cannot be done as it is asked for is a Problem of internal/cluster/revisionapi; other errors are those of the store.
type Steering interface {
	Freeze(ctx context.Context, group string, req FreezeRequest) (*Freeze, error)
	Unfreeze(ctx context.Context, group string, note NoteRequest) (*Freeze, error)
	Rollouts(ctx context.Context, id string) (*RolloutList, error) // "": all that are remembered
	StartRollout(ctx context.Context, req RolloutRequest) (*RolloutList, error)
	ChangeRollout(ctx context.Context, id, change string, note NoteRequest) (*RolloutList, error)
}
