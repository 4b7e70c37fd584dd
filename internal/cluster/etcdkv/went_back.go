package etcdkv

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A WentBack describes that an etcd went back to an earlier revision, as a restored backup does, or was
// replaced by another etcd (SAFE-17).
type WentBack struct {
	At       time.Time
	From, To int64 // the newest revision before, and the first one after
}

// Error implements error.
func (w *WentBack) Error() string {
	return fmt.Sprintf("the etcd went back from revision %d to %d", w.From, w.To)
}

// A past compares the revisions in the answers of an etcd. Each method locks it, for memory only.
type past struct {
	log *slog.Logger

	mu      sync.Mutex
	seen    position
	last    *WentBack // nil: never
	reading context.Context
	end     context.CancelCauseFunc // of reading
}

// A position is the newest known state of an etcd.
type position struct {
	revision int64
	cluster  uint64
	times    int // how many times the etcd went back before
}

func newPast(log *slog.Logger) *past {
	p := &past{log: log}
	p.reading, p.end = context.WithCancelCause(context.Background())
	return p
}

func (p *past) position() position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// answered compares the header of an answer with the position before its request. Concurrent requests may
// get their answers in any order, but each linearizable answer is as new as all answers before its request.
func (p *past) answered(before position, h *pb.ResponseHeader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before.times != p.seen.times {
		return
	}
	if h.Revision >= before.revision && (before.cluster == 0 || h.ClusterId == before.cluster) {
		p.seen.revision, p.seen.cluster = max(p.seen.revision, h.Revision), h.ClusterId
		return
	}
	p.last = &WentBack{time.Now(), p.seen.revision, h.Revision}
	p.seen = position{h.Revision, h.ClusterId, p.seen.times + 1}
	p.log.Error("etcd went back to an earlier revision, reading everything again", "from", p.last.From, "to", p.last.To)
	end := p.end
	p.reading, p.end = context.WithCancelCause(context.Background())
	end(p.last)
}

// Saw records a revision that a watch has reported. The argument times is the result of [Conn.TimesBack]
// before the watch.
func (c *Conn) Saw(times int, revision int64) {
	c.past.mu.Lock()
	defer c.past.mu.Unlock()
	if times == c.past.seen.times { // a member may be late, so a lower revision proves nothing
		c.past.seen.revision = max(c.past.seen.revision, revision)
	}
}

// TimesBack returns how many times the etcd went back since [Open].
func (c *Conn) TimesBack() int { return c.past.position().times }

// LastBack returns the last time that the etcd went back; nil: it did not.
func (c *Conn) LastBack() *WentBack {
	c.past.mu.Lock()
	defer c.past.mu.Unlock()
	return c.past.last
}

// untilBack returns a context that is done when the etcd has gone back, or when ctx is done.
func (p *past) untilBack(ctx context.Context) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	reading := p.reading
	p.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(reading, func() { cancel(context.Cause(reading)) })
	return ctx, func() { stop(); cancel(nil) }
}

// linearizable returns the header of an answer that is as new as all earlier ones; nil: another answer.
func linearizable(method string, req, reply any) *pb.ResponseHeader {
	if r, ok := req.(*pb.RangeRequest); ok && r.Serializable {
		return nil
	}
	if !strings.HasPrefix(method, "/etcdserverpb.KV/") && method != "/etcdserverpb.Lease/LeaseGrant" {
		return nil
	}
	if r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		return r.GetHeader()
	}
	return nil
}
