package clients

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	leavesWithin = 10 * time.Second // time between a response and the end of its stream that counts
	loopFor      = 5 * time.Minute  // time without another end after which a loop is over: gRPC retries within 2.5 min
	loopTimes    = 3                // number of ends from which a loop is a trouble
	returnsIn    = 15 * time.Second // time in which a client that left once is expected to connect again
)

// A leaving counts the streams of a node that its client ended soon after a response, without an ACK or NACK
// of that response. It is immutable. A node has at most one: that of its largest such response.
type leaving struct {
	typ       *xds.Type
	bytes     int32 // of the last such response; 0: unknown
	envoy     bool  // the client is an Envoy, whose messages have no limit
	times     int
	since, at int64 // first and last end
	groups    []string
}

// A Loop is a node whose clients end their stream soon after a response, without an ACK or NACK of it.
type Loop struct {
	api.Trouble
	At      time.Time // end of the last stream
	Certain bool      // the streams ended often enough for a trouble; false: the client may return
}

// unanswered returns the type and the size of the largest response of leavesWithin without an answer.
func (r *row) unanswered(now int64) (t *xds.Type, bytes int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.types {
		u := &r.types[i]
		if u.answered || now-u.sent.at > int64(leavesWithin) {
			continue
		}
		if t == nil || u.sent.bytes > bytes {
			t, bytes = u.typ, u.sent.bytes
		}
	}
	return t, bytes
}

// leaves notes that a client ended a stream. Streams that the server ended do not count, nor do streams
// of a client without a node ID. Streams that were open at the same time count as one.
func (t *Tracker) leaves(r *row, st *server.Stream, code codes.Code, now int64) {
	if code != codes.Canceled && code != codes.OK || r.client.node == "" {
		return
	}
	typ, bytes := r.unanswered(now)
	if typ == nil {
		return
	}
	next := &leaving{typ: typ, bytes: bytes, envoy: r.client.envoy, times: 1, since: now, at: now}
	if t.opts.Groups != nil {
		next.groups = slices.Clone(t.opts.Groups(st.Node))
	}
	n := r.client.home
	for {
		was := n.leaving.Load()
		if was != nil && now-was.at <= int64(loopFor) {
			switch {
			case was.typ.Is(typ) && st.Since.UnixNano() < was.at:
				return
			case was.typ.Is(typ):
				next.times, next.since = was.times+1, was.since
			case bytes <= was.bytes:
				return
			}
		}
		if n.leaving.CompareAndSwap(was, next) {
			return
		}
	}
}

// answers ends the loop of a node with an ACK or NACK of the type.
func (n *node) answers(t *xds.Type) {
	was := n.leaving.Load()
	if was != nil && was.typ.Is(t) {
		n.leaving.CompareAndSwap(was, nil)
	}
}

// certain reports whether the loop is a trouble.
func (l *leaving) certain(now int64) bool {
	return l != nil && l.times >= loopTimes && now-l.at <= int64(loopFor)
}

// trouble returns the trouble of a node.
func (l *leaving) trouble(node string) api.Trouble {
	size, limit := "", ""
	if l.bytes > 0 {
		size = fmt.Sprintf(" with %d bytes", l.bytes)
	}
	if l.bytes >= 1<<20/10 {
		size = fmt.Sprintf(" with %.1f MiB", float64(l.bytes)/(1<<20))
	}
	if l.bytes > xds.GRPCMessageSize && !l.envoy {
		limit = "; gRPC clients accept 4 MiB by default"
	}
	times := "once"
	if l.times > 1 {
		times = fmt.Sprintf("%d times", l.times)
	}
	return api.Trouble{
		Code: api.DisconnectLoop, Node: node, Type: l.typ.Short, Since: time.Unix(0, l.since),
		Text: fmt.Sprintf("it left right after a response of %s%s, %s%s", l.typ.Short, size, times, limit),
	}
}

// Loops returns the nodes that f selects by node, group and type whose clients leave soon after a response,
// and have not answered one since. It includes nodes without a connected client. A client that left once
// or twice is included while it is expected to return.
func (t *Tracker) Loops(f Filter) (all []Loop) {
	now := t.now()
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id, n := range t.nodes {
		l := n.leaving.Load()
		sure := l.certain(now)
		switch {
		case !sure && (l == nil || now-l.at > int64(returnsIn)),
			f.Node != nil && !f.Node.Match(id, nil),
			f.Type != nil && !f.Type.Is(l.typ),
			f.Group != "" && !slices.Contains(l.groups, f.Group):
			continue
		}
		all = append(all, Loop{l.trouble(id), time.Unix(0, l.at), sure})
	}
	return all
}
