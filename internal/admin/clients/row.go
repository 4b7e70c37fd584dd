package clients

import (
	"strconv"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// staleAfter is how long an answer may take before it is a trouble.
	staleAfter = 30 * time.Second

	// maxOlder is how many responses of a type are remembered that are not answered, besides
	// the newest.
	maxOlder = 16

	// maxKeptTypes is of how many types a stream's are kept that has ended.
	maxKeptTypes = 16
)

// A row is a stream.
type row struct {
	client *client
	stream *server.Stream // nil: it has ended. What is kept of it must not keep its node, which may be large
	about  api.Stream
	ended  int64 // when, of one that has ended

	mu    sync.Mutex
	types []typeRow // in push order
}

// A typeRow is how a stream stands with a type. Times are in nanoseconds of Unix time.
type typeRow struct {
	typ      *xds.Type
	refusal  *refusal // nil: none stands
	sent     message
	acked    message
	older    []pending // not answered, before the last that was sent; oldest first
	accepted int64     // when the client first accepted something
	names    int32
	wildcard bool
	answered bool // the last that was sent
	current  bool // the client said on its first request what it has, and nothing was to be sent
	stated   bool // it said what it has
}

// A message is a response. Nonces are numbers: those that clients repeat are parts of their
// requests, and must not be kept.
type message struct {
	at      int64
	nonce   uint64 // 0: there is none
	version string
	count   int32
	removed int32
	bytes   int32
}

// A pending message is what is remembered of one that was overtaken.
type pending struct {
	at             int64
	nonce          uint64
	count, removed int32
}

// A refusal is that a client refuses what it was told.
type refusal struct {
	*cause
	since, at int64
	nonce     uint64
	version   string
	partly    bool
}

// find returns the row of a type, nil if the stream has not opened it.
func (r *row) find(t *xds.Type) *typeRow {
	for i := range r.types {
		if r.types[i].typ == t {
			return &r.types[i]
		}
	}
	for i := range r.types {
		if r.types[i].typ.Is(t) {
			return &r.types[i]
		}
	}
	return nil
}

// add returns the row of a type, and makes it if there is none.
func (r *row) add(t *xds.Type) *typeRow {
	if u := r.find(t); u != nil {
		return u
	}
	at := len(r.types)
	for at > 0 && r.types[at-1].typ.Rank() > t.Rank() {
		at--
	}
	types := make([]typeRow, len(r.types)+1) // with no room to spare: streams open few types, and each once
	copy(types, r.types[:at])
	copy(types[at+1:], r.types[at:])
	types[at] = typeRow{typ: t, answered: true}
	r.types = types
	return &r.types[at]
}

// wants reports whether the client asks for anything of the type.
func (u *typeRow) wants() bool { return u.wildcard || u.names > 0 }

// send notes that a response has left.
func (u *typeRow) send(e *protocol.Event, nonce uint64, now int64) {
	if !u.answered {
		if len(u.older) >= maxOlder {
			u.older = append(u.older[:0], u.older[1:]...)
		}
		u.older = append(u.older, pending{u.sent.at, u.sent.nonce, u.sent.count, u.sent.removed})
	}
	u.sent = message{at: now, nonce: nonce, version: e.Version, count: count(e.Count + e.Beats), removed: count(e.Removed), bytes: count(e.Bytes)}
	u.answered, u.current = false, false
}

// answer notes that the client has answered a response, and returns what that had. "Updates
// may be skipped" in SotW: who answers a response has answered those before.
func (u *typeRow) answer(v xds.Variant, nonce uint64) (m pending) {
	if nonce == u.sent.nonce {
		u.answered = true
		m = pending{u.sent.at, nonce, u.sent.count, u.sent.removed}
	}
	kept := u.older[:0]
	for _, p := range u.older {
		switch {
		case p.nonce == nonce:
			m = p
		case v == xds.Delta || p.nonce > nonce:
			kept = append(kept, p)
		}
	}
	if u.older = kept; len(kept) == 0 {
		u.older = nil // which most have none of
	}
	return m
}

// oldest is since when the client owes an answer; 0: it does not.
func (u *typeRow) oldest() int64 {
	switch {
	case len(u.older) > 0:
		return u.older[0].at
	case !u.answered:
		return u.sent.at
	}
	return 0
}

// state says how the client stands with the type.
func (u *typeRow) state(now int64) state {
	switch at := u.oldest(); {
	case u.refusal != nil:
		return nacked
	case at != 0 && now-at >= int64(staleAfter):
		return stale
	case at != 0:
		return sent
	case !u.wants():
		return idle
	case u.sent.nonce == 0 && !u.current:
		return notSent
	}
	return synced
}

// number is the number that a nonce is; 0 if it is none of this server's.
func number(nonce string) uint64 {
	n, err := strconv.ParseUint(nonce, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// count is n as far as it is remembered.
func count(n int) int32 { return int32(min(n, 1<<31-1)) }
