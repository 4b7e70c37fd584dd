package client

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/guard"
	"github.com/chancery-xds/chancery/xds"
)

// A TypedEvent is an event with its resource as a message.
type TypedEvent[M proto.Message] struct {
	Event
	Value M // the message of Resource, for this event alone; the zero value if there is none
}

// Watch is as [Client.Watch] of the type whose resources are messages M, a pointer to a generated
// message. From the first watch of M on, a resource that is no such message is refused,
// for all watches of the client and for as long as it lives.
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
				if typed.Value, bad = parse(ev.Resource.Body); bad != nil {
					// It came before anybody wanted it to be an M.
					typed = TypedEvent[M]{Event: Event{Kind: Refused, Name: ev.Name, Err: bad, Server: ev.Server}}
				}
			}
			if !yield(typed, err) {
				return
			}
		}
	}
}

// messageType is the type of generated messages M.
func messageType[M proto.Message]() (of protoreflect.MessageType, err error) {
	var m M
	err = fmt.Errorf("watch: %T is no generated message", m)
	if p := guard.Do(func() {
		of = m.ProtoReflect().Type()
		_, err = of.Descriptor(), nil
	}); p != nil {
		return nil, fmt.Errorf("watch: %T is no generated message", m)
	}
	return of, err
}
