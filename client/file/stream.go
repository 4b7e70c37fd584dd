package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

// "Never takes a half-written file as final": what is read is told when nothing hints at a change
// for a while, and the file is old enough or was found the same at a second look.
const (
	quiet   = 100 * time.Millisecond
	most    = 2 * time.Second // though there are always more hints
	settles = 300 * time.Millisecond

	// Of what nobody can use the rest may be still to come. It costs nothing to wait for it, since
	// what was good is in use.
	settlesBad = 2 * time.Second
)

// A stream reads the file for one type. Recv does it, in the goroutine of its caller.
type stream struct {
	transport *transport
	only      *xds.Type
	ctx       context.Context
	watcher   *watch.Watcher // closed when ctx ends
	asked     chan struct{}  // rings for Recv: other names were asked for

	mu    sync.Mutex
	names []string // that were asked for last
	sent  int      // how often others were asked for; zero: nothing was yet
	named bool     // some request had names: one without wants nothing

	// Recv's.
	again time.Time // when to look though nothing hints at a change; zero: when Poll is over
	seen  *content  // at the last look; nil: there was none
	since time.Time // when it was first seen
	told  *content  // in the last response; nil: there was none
	to    int       // the number of the request that was told it
	said  int       // how many responses there were
}

// A content is what was found at the path.
type content struct {
	stamp watch.Stamp
	sum   [sha256.Size]byte
	err   string // why it cannot be read
	resp  *xds.Response
}

func (c *content) same(as *content) bool {
	return as != nil && c.sum == as.sum && c.err == as.err
}

// Send takes a request. Names are all that matters: the file knows no node and no versions, and
// whether the client accepts it is the client's to say.
func (s *stream) Send(r *xds.Request) error {
	if err := s.over(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(slices.Values(r.Names))
	s.named = s.named || len(names) > 0
	if s.sent > 0 && slices.Equal(names, s.names) {
		return nil
	}
	s.names = names
	s.sent++
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return nil
}

// over returns why the stream has ended; nil: it has not.
func (s *stream) over() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("%s: %w", s.transport, cause)
	}
	return nil
}

// wants returns the number of the request that is to be told; zero: nothing is asked for. A
// request without names asks for all, unless one before it had some.
func (s *stream) wants() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names) == 0 && s.named {
		return 0
	}
	return s.sent
}

// Recv waits until the file says something else, or other names are asked for.
func (s *stream) Recv() (*xds.Response, error) {
	pace := watch.Pace{Quiet: quiet, Most: most, Poll: s.transport.options.Poll}
	for {
		if _, ok := watch.Wait(s.ctx, pace, s.watcher.Bell(), s.asked, s.again); !ok {
			return nil, s.over()
		}
		s.again = time.Time{}
		to := s.wants()
		if to == 0 {
			continue
		}
		c := s.look()
		if c.same(s.told) && s.to == to {
			continue
		}
		if wait := s.unsettled(c); wait > 0 {
			s.again = time.Now().Add(wait)
			continue
		}
		s.told, s.to = c, to
		s.said++
		r := *c.resp
		r.Nonce = strconv.Itoa(s.said)
		return &r, nil
	}
}

// unsettled returns how long what was found is not believed yet. Clocks of other machines may be
// ahead: then it counts since when it was found.
func (s *stream) unsettled(c *content) time.Duration {
	while := settles
	if len(c.resp.Malformed) > 0 {
		while = settlesBad
	}
	now := time.Now()
	if c.same(s.told) || c.err == "" && now.Sub(c.stamp.Modified()) >= while {
		return 0
	}
	return while - now.Sub(s.since)
}

// look reads the file, if it has changed, and watches all that leads to it.
func (s *stream) look() *content {
	w := s.watcher
	w.Begin()
	if dir := s.transport.options.Watched; dir != "" {
		real := watch.Follow(dir, w.Touch)
		if info, err := os.Stat(real); err == nil && info.IsDir() {
			w.Enter(real)
		}
	}
	watch.Follow(s.transport.path, w.Touch)
	w.End()
	data, stamp, err := watch.Read(s.transport.path, s.transport.options.MaxFile)
	if err == nil && len(data) == 0 {
		err = errors.New("is empty, which may be an unfinished write")
	}
	c := &content{stamp: stamp, sum: sha256.Sum256(data)}
	if err != nil {
		c.err = err.Error()
	}
	if c.same(s.seen) {
		c.resp = s.seen.resp
	} else {
		s.since = time.Now()
		c.resp = s.transport.decode(s.only, data, err)
	}
	s.seen = c
	return c
}
