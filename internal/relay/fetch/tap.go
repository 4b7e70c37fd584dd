package fetch

import (
	"context"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// A tap is a transport that tells what passes: a watch is told what becomes of resources, and
// neither that an answer has none nor what the server said to a refusal.
type tap struct {
	client.Transport
	tell   func(Step)
	refuse string // what refusals say, word for word
}

// Open implements [client.Transport].
func (t *tap) Open(ctx context.Context, only *xds.Type) (client.Stream, error) {
	s, err := t.Transport.Open(ctx, only)
	if err != nil {
		t.ended(ctx, only, err)
		return nil, err
	}
	return tapped{s, t, ctx, only}, nil
}

// ended tells of the end of a stream, unless the client itself has ended it.
func (t *tap) ended(ctx context.Context, only *xds.Type, err error) {
	if ctx.Err() == nil {
		t.tell(Step{Type: only, End: err})
	}
}

type tapped struct {
	client.Stream
	*tap
	ctx  context.Context
	only *xds.Type
}

// Send implements [client.Stream].
func (s tapped) Send(r *xds.Request) error {
	if r.Error != nil && s.refuse != "" {
		refused := *r
		refused.Error = &xds.Status{Code: r.Error.Code, Message: s.refuse}
		r = &refused
	}
	err := s.Stream.Send(r)
	if err == nil {
		s.tell(Step{Type: typeOf(r.Type, s.only), Request: r})
	}
	return err // the stream's end says why
}

// Recv implements [client.Stream].
func (s tapped) Recv() (*xds.Response, error) {
	r, err := s.Stream.Recv()
	if err != nil {
		s.ended(s.ctx, s.only, err)
		return nil, err
	}
	s.tell(Step{Type: typeOf(r.Type, s.only), Response: r})
	return r, nil
}

func typeOf(t, only *xds.Type) *xds.Type {
	if t == nil {
		return only
	}
	return t
}
