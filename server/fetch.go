package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// fetch answers a unary request for type t, or for the other type (also) if the request asks for
// that type. fetch must always send an answer. So a client with the current version gets the same
// version again after the hold time.
func (s *Server) fetch(ctx context.Context, m *message, t, also *xds.Type) (out *message, err error) {
	err = s.guarded(&Stream{Type: t}, func() error { out, err = s.answer(ctx, m, t, also); return err })
	return out, err
}

func (s *Server) answer(ctx context.Context, m *message, t, also *xds.Type) (out *message, err error) {
	from := Caller{Addr: peerOf(ctx)}
	if err := s.wait(ctx, m, from.Addr); err != nil {
		m.data.Free()
		s.logRejection(ctx, &Stream{Type: t}, err)
		return nil, err
	}
	d := s.decoder(xds.SotW)
	req, err := decode(&d, m)
	if err != nil {
		err = rejected(err)
		s.logPollRejection(ctx, &Stream{Type: t}, err)
		return nil, err
	}
	if also != nil && also.Is(req.Type) {
		t = also
	}
	hold, err := holdOf(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.Poll(ctx, t, req, from)
	if err != nil {
		return nil, err
	}
	r, err := p.Wait(ctx, hold)
	if err == nil || errors.Is(err, errDraining) {
		err = s.guarded(&p.info, func() (err error) {
			if r == nil {
				r, err = p.Unchanged()
				if err != nil {
					return err
				}
			}
			out = s.encode(xds.SotW, r)
			return nil
		})
	}
	p.Close(err)
	return out, err
}

// errHasty refuses a request that would have to wait, and is too large to be kept in memory during
// the wait.
var errHasty = status.Error(codes.Unavailable, "limit exceeded: this address sends requests too fast: try again later")

// wait delays a request that exceeds the rate of its address. GRPC has already received it, so a large request is
// refused instead of kept.
func (s *Server) wait(ctx context.Context, m *message, from net.Addr) error {
	n := m.data.Len()
	if n > maxFetch {
		return limitError(tooLarge, "", codes.ResourceExhausted, "limit exceeded: a Fetch request of %d bytes, more than %d", n, maxFetch)
	}
	wait := s.delayOf(s.rate(from), requestUnits(n), from)
	if wait > 0 && n > largeRequest {
		return errHasty
	}
	if wait > 0 {
		pause(wait, ctx.Done(), nil)
	}
	return nil
}

// holdOf returns how long a call may be held.
func holdOf(ctx context.Context) (time.Duration, error) {
	hold, err := HoldTime(metadata.ValueFromIncomingContext(ctx, ExpectedTimeout)...)
	if err != nil {
		return 0, status.Error(codes.InvalidArgument, err.Error())
	}
	if end, ok := ctx.Deadline(); ok {
		hold = min(hold, max(time.Until(end)-margin, 0))
	}
	return hold, nil
}

// Identifier returns the control_plane.identifier of responses, or "" if they have none.
func (s *Server) Identifier() string { return s.identifier() }

// ExpectedTimeout is the header in which Envoy sends the timeout of its request.
const ExpectedTimeout = "x-envoy-expected-rq-timeout-ms"

// margin is how long before the client's timeout the server sends the answer.
const margin = 100 * time.Millisecond

// HoldTime returns how long a poll may be held. The arguments are the values of the header
// [ExpectedTimeout]: the poll ends a little before the timeout of its client. The result is at most
// [MaxHold].
func HoldTime(expected ...string) (time.Duration, error) {
	hold := MaxHold
	for _, s := range expected {
		ms, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%s: %.40q is not a number of milliseconds", ExpectedTimeout, s)
		}
		hold = min(hold, max(time.Duration(ms)*time.Millisecond-margin, 0))
	}
	return hold, nil
}
