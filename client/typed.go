package client

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

// A TypedEvent is an event with its resource decoded as a message.
type TypedEvent[M proto.Message] struct {
	Event
	Value M // the decoded Resource, not shared with other events; the zero value without a Resource
}

// Watch watches resources as decoded messages. It is like [Client.Watch] for the resource type of
// message M, which is a pointer to a generated message.
//
// The first Watch of M changes the client until Close: from then on the client refuses (NACK)
// resources of this type that are not a valid M. That concerns all watches of the type.
func Watch[M proto.Message](ctx context.Context, c *Client, names ...string) iter.Seq2[TypedEvent[M], error] {
	return func(yield func(TypedEvent[M], error) bool) {
		of, err := messageType[M]()
		if err != nil {
			yield(TypedEvent[M]{}, err)
			return
		}
		t := xds.TypeOf("type.googleapis.com/" + string(of.Descriptor().FullName()))
		parse := func(body []byte) (M, error) {
			v := of.New().Interface().(M)
			return v, proto.Unmarshal(body, v)
		}
		c.do(func() {
			if c.checks[t.URL] == nil {
				c.checks[t.URL] = func(body []byte) error { _, err := parse(body); return err }
			}
		})
		for ev, err := range c.Watch(ctx, t, names...) {
			typed := TypedEvent[M]{Event: ev}
			if ev.Resource != nil {
				var bad error
				typed.Value, bad = parse(ev.Resource.Body)
				if bad != nil {
					// The resource arrived before the first Watch of M.
					typed = TypedEvent[M]{Event: Event{Kind: Refused, Name: ev.Name, Err: bad, Server: ev.Server}}
				}
			}
			if !yield(typed, err) {
				return
			}
		}
	}
}

// messageType returns the type of generated message M.
func messageType[M proto.Message]() (of protoreflect.MessageType, err error) {
	var m M
	p := panics.Do(func() {
		of = m.ProtoReflect().Type()
		of.Descriptor() // panics for a type that was not generated
	})
	if p != nil {
		return nil, fmt.Errorf("watch: %T is not a generated message", m)
	}
	return of, nil
}
