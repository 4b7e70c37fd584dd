package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// restless is the time for which a wait keeps its place although other waits of its address are refused.
const restless = 10 * time.Minute

// waitPlaces limits the waits at one time. If all places are taken, a new wait replaces the newest wait of the
// address with the most waits. If its own address has as many, it replaces the oldest wait of its address, or of
// all if its address has none, if that has waited for 10 minutes. So a caller cannot keep others from waiting, however long its waits are. All unix
// sockets are one address, with places of its own.
type waitPlaces struct {
	mu          sync.Mutex // not held during I/O
	unix, other fair.Shares[*waitPlace]
}

// A waitPlace is the place of one wait.
type waitPlace struct {
	since   time.Time
	owner   string
	replace context.CancelCauseFunc
	at      *fair.Place[*waitPlace]
}

func newWaitPlaces(n int) *waitPlaces {
	return &waitPlaces{unix: fair.Shares[*waitPlace]{Max: n}, other: fair.Shares[*waitPlace]{Max: n}}
}

// errReplaced ends a wait whose place another wait has taken.
var errReplaced = &problem{http.StatusTooManyRequests, "", "another wait has taken the place of this one", "repeat the request"}

// enter returns the request with a context that is done when another wait takes its place; the cause is then
// errReplaced.
func (w *waitPlaces) enter(r *http.Request) (_ *http.Request, leave func(), _ error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	p := &waitPlace{since: time.Now(), replace: cancel}
	of := &w.other
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		of = &w.unix
	} else {
		p.owner, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !of.Room(p.owner) {
		w.leaveOldest(of, p)
	}
	at, evicted := of.Enter(p.owner, p)
	if at == nil {
		cancel(nil)
		return nil, nil, &problem{http.StatusTooManyRequests, "", fmt.Sprintf("too many requests that wait at once: %d at most", of.Max),
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

// leaveOldest ends the oldest wait of the owner of p, or of all owners if that owner has none, if it has waited
// long enough.
func (w *waitPlaces) leaveOldest(of *fair.Shares[*waitPlace], p *waitPlace) {
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
	if p.since.Sub(oldest.since) >= restless {
		of.Leave(oldest.at)
		oldest.replace(errReplaced)
	}
}
