package protocol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// ErrLimit is the error inside each [xds.LimitError] that Receive returns for an exceeded limit:
// test with [errors.Is]. All other errors of Receive report a malformed request.
var ErrLimit = errors.New("limit exceeded")

// exceeds returns the error of a request that exceeds a limit.
func exceeds(limit xds.Limit, format string, args ...any) error {
	return &xds.LimitError{Limit: limit, Err: fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))}
}

// count returns the number of names that the client subscribes to after a request. Names that are
// listed twice, or subscribed already, count once. If the number is within the limit, it may be too
// large.
func (s *Session) count(u *subscription, req xds.Request) int {
	before := 0 // in SotW, a request replaces all names
	if s.variant == xds.Delta {
		before = int(u.named)
	}
	count := before + len(req.Names) + len(req.Subscribe)
	if count <= s.opts.MaxNames {
		return count
	}
	wants := map[string]bool{}
	for _, n := range slices.Concat(req.Names, req.Subscribe) {
		wants[n] = true
	}
	for _, n := range req.Unsubscribe {
		wants[n] = false
	}
	count = before
	for n, wanted := range wants {
		switch named := before > 0 && u.isNamed(n); {
		case wanted && !named:
			count++
		case named && !wanted:
			count--
		}
	}
	return count
}

// check enforces the limits on types and names (SAFE-1).
func (s *Session) check(u *subscription, req xds.Request, first bool) error {
	if first && len(s.subs) >= s.opts.MaxTypes {
		return exceeds(xds.LimitTypes, "more than %d resource types on one stream", s.opts.MaxTypes)
	}
	if count := s.count(u, req); count > s.opts.MaxNames {
		return exceeds(xds.LimitNames, "%d names of %s, more than %d", count, u.typ, s.opts.MaxNames)
	}
	if n := max(len(u.dropped), s.hoard(u)); n > s.opts.MaxNames {
		return exceeds(xds.LimitNames, "%d unsubscribed or removed names of %s are remembered, more than %d", n, u.typ, s.opts.MaxNames)
	}
	for _, names := range [][]string{req.Names, req.Subscribe} {
		for _, n := range names {
			if len(n) > s.opts.MaxNameLen {
				return exceeds(xds.LimitNameLength, "a name of %d bytes, of type %s: more than %d", len(n), u.typ, s.opts.MaxNameLen)
			}
		}
	}
	if !first {
		return nil // later requests state no versions (DELTA-10)
	}
	return s.checkStated(u, req)
}

// checkStated enforces the limit on the length of names for the names and versions that a first request
// states. The session keeps them and may send them again.
func (s *Session) checkStated(u *subscription, req xds.Request) error {
	longest := len(req.Version)
	for _, v := range req.Initial {
		longest = max(longest, len(v.Name), len(v.Version))
	}
	if longest > s.opts.MaxNameLen {
		return exceeds(xds.LimitNameLength, "a name or version of %d bytes, of type %s: more than %d", longest, u.typ, s.opts.MaxNameLen)
	}
	return nil
}
