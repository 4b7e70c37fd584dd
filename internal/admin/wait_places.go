package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// restless is the time for which a request keeps its place although further requests of its address are refused.
const restless = 10 * time.Minute

// places limits the number of concurrent long requests of one kind. If all places are taken, a new request
// replaces the newest request of the address with the most requests. If no address has more than its own, it
// replaces the oldest request of its own address, or of all addresses if its own has none; but only if that request
// is older than restless. So long requests of one caller do not block others. All unix sockets are one address,
// with separate places.
type places struct {
	what     string        // what the requests do, for a message
	restless time.Duration // 0: no limit

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
			"try again when one of them has ended, or use a unix socket of the server, which has separate places"}
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
