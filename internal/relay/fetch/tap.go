package fetch

import (
	"context"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// A tap is a transport that reports all messages. Events of a watch do not show empty responses, or how
// the server reacts to a refusal.
type tap struct {
	client.Transport
	report func(Step)
	refuse string // the error text of refusals
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

// ended reports the end of a stream, unless the client has ended it.
func (t *tap) ended(ctx context.Context, only *xds.Type, err error) {
	if ctx.Err() == nil {
		t.report(Step{Type: only, End: err})
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
		s.report(Step{Type: typeOf(r.Type, s.only), Request: r})
	}
	return err // the end of the stream gives the reason
}

// Recv implements [client.Stream].
func (s tapped) Recv() (*xds.Response, error) {
	r, err := s.Stream.Recv()
	if err != nil {
		s.ended(s.ctx, s.only, err)
		return nil, err
	}
	s.report(Step{Type: typeOf(r.Type, s.only), Response: r})
	return r, nil
}

func typeOf(t, only *xds.Type) *xds.Type {
	if t == nil {
		return only
	}
	return t
}
