package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// restless is the time for which a wait keeps its place although other waits of its address are refused.
const restless = 10 * time.Minute

// places limits the long requests of one kind at one time. If all places are taken, a new request replaces the
// newest request of the address with the most requests. If its own address has as many, it replaces the oldest
// request of its address, or of all if its address has none, if that has lasted for restless. So a caller does
// not keep others out, however long its requests are. All unix sockets are one address, with places of its own.
type places struct {
	what     string        // what the requests do, for a message
	restless time.Duration // 0: a request keeps its place although other requests of its address are refused

	mu          sync.Mutex // not held during I/O
	unix, other fair.Shares[*guest]
}

// A guest is the place of one request.
type guest struct {
	since   time.Time
	owner   string
	replace context.CancelCauseFunc
	at      *fair.Place[*guest]
}

func newPlaces(n int, what string) *places {
	return &places{what: what, unix: fair.Shares[*guest]{Max: n}, other: fair.Shares[*guest]{Max: n}}
}

// errReplaced ends a request whose place another request has taken.
var errReplaced = &problem{http.StatusTooManyRequests, "", "another request has taken the place of this one", "repeat the request"}

// enter returns the request with a context that is done when another request takes its place; the cause is then
// errReplaced.
func (w *places) enter(r *http.Request) (_ *http.Request, leave func(), _ error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	p := &guest{since: time.Now(), replace: cancel}
	of := &w.other
	if fromUnix(r) {
		of = &w.unix
	} else {
		p.owner = ownerOf(r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !of.Room(p.owner, nil) && w.restless > 0 {
		w.leaveOldest(of, p)
	}
	at, evicted := of.Enter(p.owner, nil, p)
	if at == nil {
		cancel(nil)
		return nil, nil, &problem{http.StatusTooManyRequests, "", fmt.Sprintf("too many requests that %s at once: %d at most", w.what, of.Max),
			"try again when one of them has ended, or on a unix socket of the server: it has places of its own"}
	}
	p.at = at
	if evicted.OK {
		evicted.Item.replace(errReplaced)
	}
	return r.WithContext(ctx), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		of.Leave(at)
		cancel(nil)
	}, nil
}

// leaveOldest ends the oldest request of the owner of p, or of all owners if that owner has none, if it has
// lasted long enough.
func (w *places) leaveOldest(of *fair.Shares[*guest], p *guest) {
	has := false
	for o := range of.All() {
		has = has || o.owner == p.owner
	}
	oldest := p
	for o := range of.All() {
		if (o.owner == p.owner || !has) && o.since.Before(oldest.since) {
			oldest = o
		}
	}
	if p.since.Sub(oldest.since) >= w.restless {
		of.Leave(oldest.at)
		oldest.replace(errReplaced)
	}
}
