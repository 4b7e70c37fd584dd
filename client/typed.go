package client

import (
	"context"
	"errors"
	"iter"

	"google.golang.org/protobuf/proto"
)

// A TypedEvent is an event with its resource as a message.
type TypedEvent[M proto.Message] struct {
	Event
	Value M // the message of Resource, for this event alone; the zero value if there is none
}

// Watch is as [Client.Watch] of the type whose resources are messages M. From the first watch of
// M on, a resource that is no such message is refused.
func Watch[M proto.Message](ctx context.Context, c *Client, names ...string) iter.Seq2[TypedEvent[M], error] {
	return func(yield func(TypedEvent[M], error) bool) { yield(TypedEvent[M]{}, errors.ErrUnsupported) }
}
