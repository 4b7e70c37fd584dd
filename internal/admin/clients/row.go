package clients

import (
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// staleAfter is the time after which a response without ACK or NACK is a trouble.
	staleAfter = 30 * time.Second

	// maxOlder is the maximum number of unanswered responses that are remembered for a type, in
	// addition to the newest response.
	maxOlder = 16

	// maxKeptTypes is the maximum number of types whose state is kept after the stream has ended.
	maxKeptTypes = 16
)

// A row is the state of a stream.
type row struct {
	client *client
	stream *server.Stream // nil: the stream has ended; its node may be large and must not stay in memory
	info   api.Stream
	ended  int64 // when the stream ended; 0: it is open

	mu    sync.Mutex
	types []typeRow // in push order
}

// A typeRow is the state of one type on a stream. Times are Unix times in nanoseconds.
type typeRow struct {
	typ      *xds.Type
	refusal  *refusal // nil: nothing is refused
	sent     message
	acked    message
	older    []pending // unanswered responses before the last one, oldest first
	accepted int64     // time when the client first accepted a response
	names    int32
	wildcard bool
	answered bool // the client has answered the last response
	current  bool // the first request stated the client's resources, and all of them were current
	stated   bool // the first request stated the client's resources
}

// A message is a response. Nonces are kept as numbers: a nonce string is a part of the client's request,
// and would keep the whole request in memory.
type message struct {
	at      int64
	nonce   uint64 // 0: no message
	version string
	count   int32
	removed int32
	bytes   int32
}

// A pending is an unanswered response that is not the last one.
type pending struct {
	at             int64
	nonce          uint64
	count, removed int32
}

// A refusal is a NACK of a client that has not accepted a later response.
type refusal struct {
	*cause
	since, at int64
	nonce     uint64
	version   string
	partly    bool
}

// find returns the row of a type, or nil if the stream has not opened the type.
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

// add returns the row of a type, and creates it if necessary.
func (r *row) add(t *xds.Type) *typeRow {
	if u := r.find(t); u != nil {
		return u
	}
	at := len(r.types)
	for at > 0 && r.types[at-1].typ.Rank() > t.Rank() {
		at--
	}
	types := make([]typeRow, len(r.types)+1) // no spare capacity, because a stream opens few types, and each only once
	copy(types, r.types[:at])
	copy(types[at+1:], r.types[at:])
	types[at] = typeRow{typ: t, answered: true}
	r.types = types
	return &r.types[at]
}

// wants reports whether the client subscribes to anything of the type.
func (u *typeRow) wants() bool { return u.wildcard || u.names > 0 }

// send notes a sent response.
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

// answer notes that the client answered a response, and returns that response. In SotW "updates may
// be skipped", so an answer also counts for all earlier responses.
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
	u.older = kept
	if len(kept) == 0 { // most streams have no unanswered responses: free the array
		u.older = nil
	}
	return m
}

// oldest returns the time of the oldest unanswered response; 0 if the client has answered all.
func (u *typeRow) oldest() int64 {
	switch {
	case len(u.older) > 0:
		return u.older[0].at
	case !u.answered:
		return u.sent.at
	}
	return 0
}

// state returns the state of the type.
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

// count limits n to the range of an int32.
func count(n int) int32 { return int32(min(n, 1<<31-1)) }
