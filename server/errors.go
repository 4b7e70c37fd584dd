package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
)

// errNotKnown ends polls, which cannot wait for as long as streams can.
var errNotKnown = status.Error(codes.Unavailable, "nothing is configured for this node yet: try again later")

var errDraining = status.Error(codes.Unavailable, "the server is shutting down")

// A fault is what is wrong with what clients do.
type fault uint8

const (
	malformed fault = iota
	tooManyStreams
	tooLarge  // a request, or a part of it
	tooMany   // types or names
	tooFast   // requests
	tooSlow   // a write was blocked
	tooLate   // the first request
	tooSilent // streams without a request
	tooOther  // streams of other services
	tooManyPolls
	tooUnfinished
	tooCrowded // requests of an address
	tooHasty   // streams of a connection come and go
	mustWait   // for the first answer
	faults     // how many there are
)

// limits are the names of faults that have to do with a limit.
var limits = [faults]string{
	tooManyStreams: "streams", tooLarge: "request", tooMany: "subscription", tooFast: "rate", tooSlow: "write", tooLate: "first_request", tooSilent: "silent_streams", tooOther: "other_streams", tooManyPolls: "polls", tooUnfinished: "unfinished", tooCrowded: "address_rate", tooHasty: "stream_rate", mustWait: "first_answers",
}

// A tally counts faults. The zero value is ready to use.
type tally [faults]atomic.Uint64

func (t *tally) throttled() map[string]uint64 {
	m := map[string]uint64{}
	for f, name := range limits {
		if name != "" {
			m[name] = t[f].Load()
		}
	}
	return m
}

// A rejection ends a stream because of what its client did. It is a gRPC status.
type rejection struct {
	fault
	*status.Status
}

func reject(f fault, c codes.Code, format string, args ...any) error {
	return &rejection{f, status.Newf(c, format, args...)}
}

func (r *rejection) Error() string              { return r.Err().Error() }
func (r *rejection) GRPCStatus() *status.Status { return r.Status }

// rejected is what the client of a request that cannot be served is told.
func rejected(err error) error {
	switch {
	case errors.Is(err, wire.ErrLimit):
		return reject(tooLarge, codes.ResourceExhausted, "%v", err)
	case errors.Is(err, protocol.ErrLimit):
		return reject(tooMany, codes.ResourceExhausted, "%v", err)
	}
	return reject(malformed, codes.InvalidArgument, "%v", err)
}

// unread is what becomes of an error of gRPC's that ended the requests.
func unread(err error) error {
	if isInternal(err) {
		return err // a panic of ours
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.ResourceExhausted: // "received message larger than max"
		return &rejection{tooLarge, s}
	case codes.Internal, codes.Unimplemented: // no message, or compressed in a way nobody knows
		return &rejection{malformed, s}
	}
	return err // the client went away
}

// rejects notes that err, if it is a rejection, ends a stream. st is what is known of it.
func (s *Server) rejects(ctx context.Context, st *Stream, err error) {
	s.refuses(ctx, st, err, "stream closed: client exceeded a limit or sent a malformed request")
}

// rejectsPoll is the same of a poll: it has an error, or its answer before its time.
func (s *Server) rejectsPoll(ctx context.Context, st *Stream, err error) {
	s.refuses(ctx, st, err, "poll ended: client exceeded a limit or sent a malformed request")
}

func (s *Server) refuses(ctx context.Context, st *Stream, err error, what string) {
	r, ok := errors.AsType[*rejection](err)
	if !ok {
		return
	}
	s.tally[r.fault].Add(1)
	s.complain(ctx, st, what, slog.String("code", r.Code().String()), slog.String("error", r.Message()))
}

// complain logs what a client did, or counts it if others have done the same a
// moment ago.
func (s *Server) complain(ctx context.Context, st *Stream, what string, more ...slog.Attr) {
	attrs := []slog.Attr{slog.Uint64("stream", st.ID)}
	who := *st
	if p, ok := peer.FromContext(ctx); ok {
		who.Peer = p.Addr
		attrs = append(attrs, slog.String("peer", p.Addr.String()))
	}
	if st.Node != nil {
		attrs = append(attrs, slog.String("node", clip(st.Node.ID)))
	}
	s.warn(whose(&who), mask(fmt.Sprint(what, more)), what, append(attrs, more...))
}
