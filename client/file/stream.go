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

// A half-written file must not be used. So a content is used only if no change is notified for a while,
// and the file is old enough or two reads find the same content.
const (
	quietTime    = 100 * time.Millisecond
	maxQuietWait = 2 * time.Second // limit, if changes are notified all the time
	settleTime   = 300 * time.Millisecond

	// An invalid file may be an unfinished write. Waiting costs nothing, since the last good resources
	// stay in use.
	settleTimeInvalid = 2 * time.Second
)

// A stream reads the file for one type. It reads in Recv, in the caller's goroutine.
type stream struct {
	transport *transport
	only      *xds.Type
	ctx       context.Context
	watcher   *watch.Watcher // closed when ctx ends
	asked     chan struct{}  // one slot, for Recv: other names were requested

	mu       sync.Mutex
	names    []string // of the last request
	requests int      // number of requests with different names
	hasNamed bool     // some request had names, so a request without names subscribes to nothing

	// Owned by Recv.
	nextLook    time.Time // when to read the file without a notification; zero: after Poll
	lastLook    *content  // content of the last read; nil: none yet
	firstSeen   time.Time // when lastLook was first read
	lastSent    *content  // content of the last response; nil: none yet
	lastRequest int       // number of the request that the last response answered
	responses   int       // number of responses
}

// A content is the result of reading the file.
type content struct {
	stamp watch.Stamp
	sum   [sha256.Size]byte
	err   string // why it cannot be read
	resp  *xds.Response
}

func (c *content) same(as *content) bool {
	return as != nil && c.sum == as.sum && c.err == as.err
}

// Send takes a request. Only its names matter: a file does not depend on the node or on versions, and
// the client checks the resources itself.
func (s *stream) Send(r *xds.Request) error {
	if err := s.ended(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(slices.Values(r.Names))
	s.hasNamed = s.hasNamed || len(names) > 0
	if s.requests > 0 && slices.Equal(names, s.names) {
		return nil
	}
	s.names = names
	s.requests++
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return nil
}

// ended returns the reason why the stream has ended; nil: it is open.
func (s *stream) ended() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("%s: %w", s.transport, cause)
	}
	return nil
}

// currentRequest returns the number of the request to answer; zero: the client subscribes to nothing. A
// request without names subscribes to all resources, unless an earlier request had names.
func (s *stream) currentRequest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names) == 0 && s.hasNamed {
		return 0
	}
	return s.requests
}

// Recv waits until the file has changed, or other names are requested.
func (s *stream) Recv() (*xds.Response, error) {
	pace := watch.Pace{Quiet: quietTime, Most: maxQuietWait, Poll: s.transport.options.Poll}
	for {
		if _, why := watch.Wait(s.ctx, pace, s.watcher.Bell(), s.asked, s.nextLook); why == watch.Ended {
			return nil, s.ended()
		}
		s.nextLook = time.Time{}
		to := s.currentRequest()
		if to == 0 {
			continue
		}
		c := s.look()
		if c.same(s.lastSent) && s.lastRequest == to {
			continue
		}
		if wait := s.untilSettled(c); wait > 0 {
			s.nextLook = time.Now().Add(wait)
			continue
		}
		s.lastSent, s.lastRequest = c, to
		s.responses++
		r := *c.resp
		r.Nonce = strconv.Itoa(s.responses)
		return &r, nil
	}
}

// untilSettled returns how long to wait before the content may be used. The clock of another machine
// may be ahead; then the wait starts when the content was first read.
func (s *stream) untilSettled(c *content) time.Duration {
	while := settleTime
	if len(c.resp.Malformed) > 0 {
		while = settleTimeInvalid
	}
	now := time.Now()
	if c.same(s.lastSent) || c.err == "" && now.Sub(c.stamp.Modified()) >= while {
		return 0
	}
	return while - now.Sub(s.firstSeen)
}

// look reads the file, if it has changed, and watches all directories and links on the way to it.
func (s *stream) look() *content {
	w := s.watcher
	w.Begin()
	if dir := s.transport.options.WatchedDirectory; dir != "" {
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
	if c.same(s.lastLook) {
		c.resp = s.lastLook.resp
	} else {
		s.firstSeen = time.Now()
		c.resp = s.transport.decode(s.only, data, err)
	}
	s.lastLook = c
	return c
}
