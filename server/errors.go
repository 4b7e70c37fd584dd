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

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// errNotKnown ends polls, which cannot wait for as long as streams can, and streams that cannot
// wait any more, as they have begun.
var errNotKnown = status.Error(codes.Unavailable, "nothing is configured for this node yet: try again later")

// errBehind ends streams of clients that have what this server does not know while nobody says whether that is newer.
var errBehind = status.Error(codes.Unavailable, "what this server has may be older than what the client has: try another, or again later")

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
	denied     // its node may see nothing
	faults     // how many there are
)

// limits are the names of faults that have to do with a limit, as statistics have them: one
// name may stand for several limits that are alike.
var limits = [faults]xds.Limit{
	tooManyStreams: "streams", tooLarge: "request", tooMany: "subscription", tooFast: "rate", tooSlow: "write", tooLate: "first_request", tooSilent: "silent_streams", tooOther: "other_streams", tooManyPolls: "polls", tooUnfinished: "unfinished", tooCrowded: "address_rate", tooHasty: "stream_rate", mustWait: "first_answers",
}

// A tally counts faults. The zero value is ready to use.
type tally [faults]atomic.Uint64

func (t *tally) throttled() map[string]uint64 {
	m := map[string]uint64{}
	for f, name := range limits {
		if name != "" {
			m[string(name)] = t[f].Load()
		}
	}
	return m
}

// A rejection ends a stream because of what its client did. It is a gRPC status.
type rejection struct {
	fault
	logged bool      // by the source
	limit  xds.Limit // that the client exceeds; "": none that anybody sets
	*status.Status
}

// Limits beside those of requests, of which a fault has several.
const (
	limitRequest   xds.Limit = "request"    // bytes of a request
	limitHeld      xds.Limit = "held"       // bytes of the names of one stream
	limitHeldInAll xds.Limit = "held_total" // of all
	limitRead      xds.Limit = "read"       // time for a request that has begun
)

// reject returns the rejection of a fault that has to do with one limit, or with none.
func reject(f fault, c codes.Code, format string, args ...any) error {
	return exceeds(f, limits[f], c, format, args...)
}

// exceeds returns one that has to do with a certain limit.
func exceeds(f fault, limit xds.Limit, c codes.Code, format string, args ...any) error {
	return &rejection{fault: f, limit: limit, Status: status.Newf(c, format, args...)}
}

// attrs are what a line says of a rejection. Whoever runs the server knows how to raise the
// limit: flags are not the library's.
func (r *rejection) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("code", r.Code().String()), slog.String("error", r.Message())}
	if r.limit != "" {
		attrs = append(attrs, limitAttr(r.limit))
	}
	return attrs
}

func limitAttr(limit xds.Limit) slog.Attr { return slog.String("limit", string(limit)) }

func (r *rejection) Error() string              { return r.Err().Error() }
func (r *rejection) GRPCStatus() *status.Status { return r.Status }

// rejected is what the client of a request that cannot be served is told.
func rejected(err error) error {
	if e, ok := errors.AsType[*xds.LimitError](err); ok {
		f := tooMany
		if errors.Is(err, wire.ErrLimit) { // it was not even read
			f = tooLarge
		}
		return exceeds(f, e.Limit, codes.ResourceExhausted, "%v", err)
	}
	return reject(malformed, codes.InvalidArgument, "%v", err)
}

// logged reports whether a source has logged its error: then the server's line is for those who
// debug. Such an error has a method Told() bool.
func logged(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Told() bool
	}](err)
	return ok && t.Told()
}

// deny is what a client is told whose node may see nothing, for err.
func deny(err error) error {
	if s, ok := status.FromError(err); ok {
		return &rejection{fault: denied, Status: s, logged: logged(err)}
	}
	return reject(denied, codes.PermissionDenied, "%v", err)
}

// unread is what becomes of an error of gRPC's that ended the requests.
func unread(err error) error {
	if _, ours := errors.AsType[*rejection](err); ours || err == nil || isInternal(err) {
		return err // a panic of ours, too
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.ResourceExhausted: // "received message larger than max"
		return &rejection{fault: tooLarge, limit: limitRequest, Status: s}
	case codes.Internal, codes.Unimplemented: // no message, or compressed in a way nobody knows
		return &rejection{fault: malformed, Status: s}
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
	if r.fault == denied {
		what = "client refused: its node may see nothing"
	}
	s.tally[r.fault].Add(1)
	if r.logged {
		s.log.LogAttrs(ctx, slog.LevelDebug, what, append([]slog.Attr{slog.Uint64("stream", st.ID)}, r.attrs()...)...) //nolint:sloglint // a literal
		return
	}
	s.complain(ctx, st, what, r.attrs()...)
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
	s.warn(&who, mask(fmt.Sprint(what, more)), what, append(attrs, more...))
}
