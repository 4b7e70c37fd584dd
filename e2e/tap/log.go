package tap

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Records are the records of a conversation, in order.
type Records []Record

// A Log collects records. It is safe for concurrent use.
type Log struct {
	start time.Time

	mu      sync.Mutex
	records Records
	streams int
	changed chan struct{} // closed and replaced with every record
}

func newLog() *Log {
	return &Log{start: time.Now(), changed: make(chan struct{})}
}

func (l *Log) add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.At = time.Since(l.start)
	l.records = append(l.records, r)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Log) open(method string) int {
	l.mu.Lock()
	l.streams++
	n := l.streams
	l.mu.Unlock()
	l.add(Record{Stream: n, Kind: Open, Text: method})
	return n
}

// A Point is a place in the log.
type Point int

// Mark writes a remark into the log and returns the place after it.
func (l *Log) Mark(format string, args ...any) Point {
	l.add(Record{Kind: Mark, Text: fmt.Sprintf(format, args...)})
	return l.Here()
}

// Here returns the place after the last record.
func (l *Log) Here() Point {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Point(len(l.records))
}

// Since returns the records after a point; the zero Point is the start.
func (l *Log) Since(p Point) Records {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records[p:])
}

// Await waits until the records since the point satisfy ok, and returns them. It reports false if ctx ends
// first.
func (l *Log) Await(ctx context.Context, p Point, ok func(Records) bool) (Records, bool) {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if rs := l.Since(p); ok(rs) {
			return rs, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return l.Since(p), false
		}
	}
}

// Where returns the records that satisfy f.
func (rs Records) Where(f func(Record) bool) Records {
	var out Records
	for _, r := range rs {
		if f(r) {
			out = append(out, r)
		}
	}
	return out
}

// Requests returns the requests of the types; of all types if none is given.
func (rs Records) Requests(types ...string) Records { return rs.of(Request, types) }

// Responses returns the responses of the types; of all types if none is given.
func (rs Records) Responses(types ...string) Records { return rs.of(Response, types) }

// About returns the messages of the types, and all records without a type: marks, and the opening and
// closing of streams. Unlike Requests, it needs at least one type.
func (rs Records) About(types ...string) Records {
	return rs.Where(func(r Record) bool { return r.Type == "" || slices.Contains(types, r.Type) })
}

// NACKs returns the requests that reject a response.
func (rs Records) NACKs(types ...string) Records {
	return rs.of(Request, types).Where(Record.IsNACK)
}

// ACKs returns the requests that repeat the nonce of a response and do not reject it. A later change of
// the subscription repeats the nonce, too, and counts.
func (rs Records) ACKs(types ...string) Records {
	return rs.of(Request, types).Where(func(r Record) bool { return r.Nonce != "" && !r.IsNACK() })
}

// Carrying returns the responses that bring at least one resource.
func (rs Records) Carrying(types ...string) Records {
	return rs.of(Response, types).Where(func(r Record) bool { return len(r.Resources) > 0 })
}

// Opened returns the streams opened.
func (rs Records) Opened() Records { return rs.of(Open, nil) }

func (rs Records) of(kind Kind, types []string) Records {
	return rs.Where(func(r Record) bool {
		return r.Kind == kind && (len(types) == 0 || slices.Contains(types, r.Type))
	})
}

// Quiet reports whether the newest response of each type on each open stream was answered. A client need not
// answer older responses: Envoy answers only the last of several that arrived while it was warming.
func (rs Records) Quiet() bool {
	type key struct {
		stream int
		typ    string
	}
	open := map[key]string{} // nonce
	for _, r := range rs {
		k := key{r.Stream, r.Type}
		switch {
		case r.Kind == Response:
			open[k] = r.Nonce
		case r.Kind == Request && r.Nonce != "" && open[k] == r.Nonce:
			delete(open, k)
		case r.Kind == Close:
			maps.DeleteFunc(open, func(k key, _ string) bool { return k.stream == r.Stream })
		}
	}
	return len(open) == 0
}

// longest is how many records [Records.String] prints at most.
const longest = 400

// String prints the conversation, one record a line.
func (rs Records) String() string {
	var b strings.Builder
	for i, r := range rs {
		if i == longest/2 && len(rs) > longest {
			fmt.Fprintf(&b, "          … %d more …\n", len(rs)-longest)
		}
		if i < longest/2 || i >= len(rs)-longest/2 {
			b.WriteString(r.String())
			b.WriteByte('\n')
		}
	}
	return b.String()
}
