package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// doors has the doors for one purpose. Unix sockets have a door of their own, so that network callers
// cannot block a local operator.
type doors struct{ unix, other sharedDoor }

// limit sets the number of callers inside each door at one time.
func (d *doors) limit(n int) { d.unix.max, d.other.max = n, n }

// wait enters the door for a request. If the caller must wait, it waits up to askTime.
func (d *doors) wait(r *http.Request) (leave func(), err error) {
	if fromUnix(r) {
		return d.unix.wait(r.Context(), "")
	}
	return d.other.wait(r.Context(), ownerOf(r))
}

// fromUnix reports whether a request came over a unix socket.
func fromUnix(r *http.Request) bool {
	_, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return unix
}

// ownerOf returns the owner of a request over the network: the identity in its client certificate, or else its
// address as [fair.Owner] shows it. A token is not an identity, because all callers have the same one.
func ownerOf(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return identityOf(r)
	}
	if a := addressOf(r); a != nil {
		return fair.Owner(a)
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// addressOf returns the address of a caller; nil over a unix socket.
func addressOf(r *http.Request) net.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

// A sharedDoor limits the number of callers inside, and shares the places by owner. A free place goes to the
// waiting owner with the fewest callers inside. But an owner enters only while it holds fewer places than are
// free. So a single owner with slow callers does not hold all places.
type sharedDoor struct {
	max int

	mu      sync.Mutex     // not held during I/O
	inside  int            // number of callers
	held    map[string]int // number of callers inside, by owner
	waiting []*visitor     // in the order of arrival
}

// A visitor waits in front of a door. Its channel is closed when it is inside.
type visitor struct {
	owner string
	in    chan struct{}
}

func (d *sharedDoor) wait(ctx context.Context, owner string) (leave func(), err error) {
	v := &visitor{owner, make(chan struct{})}
	d.mu.Lock()
	d.waiting = append(d.waiting, v)
	d.admit()
	d.mu.Unlock()
	leave = func() { d.leave(v) }
	t := time.NewTimer(askTime)
	defer t.Stop()
	select {
	case <-v.in:
		return leave, nil
	case <-ctx.Done():
		err = errEnding
	case <-t.C:
		err = &problem{http.StatusServiceUnavailable, "", fmt.Sprintf("too many answers of this kind are under way: %d at most", d.max), "try again later"}
	}
	leave()
	return nil, err
}

// admit lets waiting visitors in while there are places for them. The caller holds the lock.
func (d *sharedDoor) admit() {
	for d.inside < d.max {
		next := -1
		for i, v := range d.waiting {
			if d.allows(v.owner) && (next < 0 || d.held[v.owner] < d.held[d.waiting[next].owner]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		v := d.waiting[next]
		d.waiting = slices.Delete(d.waiting, next, next+1)
		if d.held == nil {
			d.held = map[string]int{}
		}
		d.held[v.owner]++
		d.inside++
		close(v.in)
	}
}

// allows reports whether an owner may take a free place. Callers without an address, and owners of a door with
// at most two places, may take all.
func (d *sharedDoor) allows(owner string) bool {
	return owner == "" || d.max <= 2 || d.held[owner] < d.max-d.inside
}

// leave ends the stay of a visitor, or its wait.
func (d *sharedDoor) leave(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.waiting, v); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		return
	}
	d.inside--
	d.held[v.owner]--
	if d.held[v.owner] == 0 {
		delete(d.held, v.owner)
	}
	d.admit()
}
