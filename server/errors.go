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

// errNotKnown ends a poll or a stream if the content for its node is not known. A poll cannot wait
// as long as a stream. A stream ends with this error only if the content becomes unknown after the
// stream has begun.
var errNotKnown = status.Error(codes.Unavailable, "nothing is configured for this node yet: try again later")

// errBehind ends a stream whose client may have newer content than the source, if the server cannot
// check that now.
var errBehind = status.Error(codes.Unavailable, "this server may be older than the version that the client has: try another server, or again later")

var errDraining = status.Error(codes.Unavailable, "the server is shutting down")

// A fault is a kind of misbehaviour of a client.
type fault uint8

const (
	malformed fault = iota
	tooManyStreams
	tooLarge      // a request, or a part of it
	tooMany       // too many types or names
	tooFast       // requests on a stream
	tooSlow       // the client does not read
	answersNot    // the client leaves responses unanswered
	tooLate       // the first request
	tooSilent     // streams without a request
	tooManyOthers // streams of other services
	tooManyPolls
	tooManyUnfinished
	tooFastAddress // requests from an address
	tooManyEnds    // streams of a connection open and end too fast
	mustWait       // the first responses of a stream had to wait
	denied         // the node may see nothing
	faults         // the number of faults
)

// limitNames has the name of the limit that each fault exceeds, for statistics.
var limitNames = [faults]xds.Limit{
	tooManyStreams: "streams", tooLarge: "request", tooMany: "subscription", tooFast: "rate", tooSlow: "write", answersNot: "unanswered", tooLate: "first_request", tooSilent: "silent_streams", tooManyOthers: "other_streams", tooManyPolls: "polls", tooManyUnfinished: "unfinished", tooFastAddress: "address_rate", tooManyEnds: "stream_rate", mustWait: "first_answers",
}

// A tally counts faults. The zero value is ready to use.
type tally [faults]atomic.Uint64

func (t *tally) throttled() map[string]uint64 {
	m := map[string]uint64{}
	for f, name := range limitNames {
		if name != "" {
			m[string(name)] = t[f].Load()
		}
	}
	return m
}

// A rejection is the error that ends a stream because of its client. It has a gRPC status.
type rejection struct {
	fault
	logged bool      // the source has logged the error
	limit  xds.Limit // the exceeded limit; "": no configurable limit
	*status.Status
}

// Names of further limits: some faults can exceed several limits.
const (
	limitRequest   xds.Limit = "request"    // bytes of a request
	limitHeld      xds.Limit = "held"       // bytes of the names of one stream
	limitHeldInAll xds.Limit = "held_total" // bytes of the names of all streams
	limitRead      xds.Limit = "read"       // time to receive a request that has begun
)

// reject returns the rejection for a fault with at most one limit.
func reject(f fault, c codes.Code, format string, args ...any) error {
	return limitError(f, limitNames[f], c, format, args...)
}

// limitError returns the rejection for a fault that exceeds the given limit.
func limitError(f fault, limit xds.Limit, c codes.Code, format string, args ...any) error {
	return &rejection{fault: f, limit: limit, Status: status.Newf(c, format, args...)}
}

// attrs returns the log attributes of a rejection. The log has the name of the limit and not of a flag, because this
// library has no flags.
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

// rejected returns the error for the client of a request or a stream that the server cannot serve.
func rejected(err error) error {
	if e, ok := errors.AsType[*xds.LimitError](err); ok {
		f := tooMany
		switch {
		case errors.Is(err, wire.ErrLimit): // the request was not even decoded
			f = tooLarge
		case e.Limit == xds.LimitUnanswered:
			f = answersNot
		}
		return limitError(f, e.Limit, codes.ResourceExhausted, "%v", err)
	}
	return reject(malformed, codes.InvalidArgument, "%v", err)
}

// loggedBySource reports whether the source has already logged its error. Then the server logs it at debug level only. Such
// an error has a method Told() bool.
func loggedBySource(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Told() bool
	}](err)
	return ok && t.Told()
}

// deny returns the error for a client whose node may see nothing, because of err.
func deny(err error) error {
	if s, ok := status.FromError(err); ok {
		return &rejection{fault: denied, Status: s, logged: loggedBySource(err)}
	}
	return reject(denied, codes.PermissionDenied, "%v", err)
}

// readError converts an error of gRPC that ended the requests of a stream.
func readError(err error) error {
	if _, ours := errors.AsType[*rejection](err); ours || err == nil || isInternal(err) {
		return err // including a caught panic
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.ResourceExhausted: // "received message larger than max"
		return &rejection{fault: tooLarge, limit: limitRequest, Status: s}
	case codes.Internal, codes.Unimplemented: // not a message, or an unknown compression
		return &rejection{fault: malformed, Status: s}
	}
	return err // the client has gone
}

// logRejection counts and logs err if it is a rejection that ends a stream. St describes the stream as far as it is known.
func (s *Server) logRejection(ctx context.Context, st *Stream, err error) {
	s.logRejectionAs(ctx, st, err, "stream closed: client exceeded a limit or sent a malformed request")
}

// logPollRejection does the same as logRejection, for a poll.
func (s *Server) logPollRejection(ctx context.Context, st *Stream, err error) {
	s.logRejectionAs(ctx, st, err, "poll ended: client exceeded a limit or sent a malformed request")
}

func (s *Server) logRejectionAs(ctx context.Context, st *Stream, err error, what string) {
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
	s.warnClient(ctx, st, what, r.attrs()...)
}

// warnClient logs a warning about a client, or counts it if an equal warning was logged a moment ago.
func (s *Server) warnClient(ctx context.Context, st *Stream, what string, more ...slog.Attr) {
	attrs := []slog.Attr{slog.Uint64("stream", st.ID)}
	who := *st
	if p, ok := peer.FromContext(ctx); ok {
		who.Peer = p.Addr
		attrs = append(attrs, slog.String("peer", p.Addr.String()))
	}
	if st.Node != nil {
		attrs = append(attrs, slog.String("node", clip(st.Node.ID)))
	}
	s.warn(&who, normalized(fmt.Sprint(what, more)), what, append(attrs, more...))
}
