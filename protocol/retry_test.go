package protocol

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

func TestRetryDelay(t *testing.T) {
	t.Run("HEAL-2 doubles up to the slowest step", func(t *testing.T) {
		step := 5 * time.Second
		for tries := range 70 {
			for spread := range uint64(100) {
				if d := RetryDelay(tries, false, spread, 7); d < step || d >= step*6/5 {
					t.Errorf("%d tries, stream %d: %v, want %v and up to a fifth more", tries, spread, d, step)
				}
				if d := RetryDelay(tries, true, spread, 7); d < lastRetry || d >= lastRetry*6/5 {
					t.Errorf("%d tries, stream %d: %v for a reason that cannot pass", tries, spread, d)
				}
			}
			step = min(2*step, 5*time.Minute)
		}
	})
	even := func(t *testing.T, spread, nonce func(uint64) uint64) {
		t.Helper()
		var tenths [10]int
		for i := range uint64(10_000) {
			tenths[(RetryDelay(9, false, spread(i), nonce(i))-lastRetry)*10/(lastRetry/5)]++
		}
		for i, n := range tenths {
			if n < 800 || n > 1200 {
				t.Errorf("%d of 10,000 delays are in tenth %d of the spread", n, i)
			}
		}
	}
	same, count := func(uint64) uint64 { return 2 }, func(i uint64) uint64 { return i }
	t.Run("HEAL-2 spreads over streams", func(t *testing.T) { even(t, count, same) })
	t.Run("HEAL-2 spreads over the refusals of a stream", func(t *testing.T) { even(t, same, count) })
}

// refuses returns a stream whose client has just refused a listener, and the time of the refusal.
func refuses(t *testing.T, spread uint64, text string, permit func() bool) (*line, time.Time) {
	t.Helper()
	l := newLine(t, xds.Delta, nil, Options{Spread: spread, Retry: func(*xds.Type, int) bool { return permit() }}, xds.Tables{xds.Listener.URL: tableOf(xds.Listener, "a")})
	l.wait(time.Duration(spread*97+1) * time.Millisecond)
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	l.want("LDS a@1")
	l.ask(xds.Request{Type: xds.Listener, Nonce: l.last[xds.Listener.URL], Error: &xds.Status{Message: text}})
	l.want("")
	return l, l.now
}

func TestRetriesShareSeconds(t *testing.T) {
	for spread := range uint64(20) {
		l, at := refuses(t, spread, "Address already in use", func() bool { return true })
		if _, said := l.next(); said != "LDS a@1" || l.now.Nanosecond() != 0 || l.now.Sub(at) < 5*time.Second || l.now.Sub(at) > 7*time.Second {
			t.Errorf("HEAL-2 stream %d: %v after the refusal sent %q, want a retry at a full second after 5 s", spread, l.now.Sub(at), said)
		}
	}
}

// A session whose retry the server does not permit asks again. Slow retries ask less often: their number may
// be larger than the limits of the server.
func TestRetryWithoutPermit(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		step, wait time.Duration
	}{
		"HEAL-2 first retry": {"Address already in use", 5 * time.Second, time.Second},
		"HEAL-2 slow retry":  {"Proto constraint validation failed", 5 * time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var l *line
			var asked []time.Time
			l, at := refuses(t, 3, c.text, func() bool { asked = append(asked, l.now); return len(asked) > 3 })
			if _, said := l.next(); said != "LDS a@1" || len(asked) != 4 {
				t.Fatalf("sent %q, asked %d times", said, len(asked))
			}
			between := func(d, least time.Duration) bool { return d >= least && d <= least*6/5+time.Second }
			if first := asked[0].Sub(at); !between(first, c.step) {
				t.Errorf("asked first after %v", first)
			}
			for i, next := range asked[1:] {
				if wait := next.Sub(asked[i]); !between(wait, c.wait) || next.Nanosecond() != 0 {
					t.Errorf("asked again after %v at %v", wait, next)
				}
			}
		})
	}
}

// A retry in two responses: one of the listeners refers to a new cluster, and waits until the client accepts it.
// The answers to both are answers to a retry.
func TestRetryInTwoResponses(t *testing.T) {
	listeners := append(resources(1, "a"), resource("b", 1, xds.Ref{Type: xds.Cluster, Name: "new"}))
	l := newLine(t, xds.Delta, nil, Options{Retry: func(*xds.Type, int) bool { return true }}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "c"), xds.Listener.URL: with(xds.NewTable(xds.Listener), listeners),
	})
	var said []string
	step := func() {
		for r := range l.Responses() {
			l.last[r.Type.URL] = r.Nonce
		}
		for e := range l.Events() {
			if e.Type.Is(xds.Listener) && (e.Kind == Sent || e.Kind == Acked) {
				said = append(said, fmt.Sprint(map[EventKind]string{Sent: "sent", Acked: "accepted"}[e.Kind], " retry=", e.Retry))
			}
		}
		for range l.Interests() {
		}
	}
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	step()
	l.nack(xds.Listener)
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*"}})
	step()
	l.ack(xds.Cluster)
	l.wait(4500 * time.Millisecond)
	l.commit(xds.Cluster, resources(1, "new"))
	step()
	said = nil
	for range 3 {
		l.wait(time.Second)
		step()
	}
	l.ack(xds.Listener)
	step()
	l.ack(xds.Cluster)
	step()
	l.ack(xds.Listener)
	step()
	want := []string{"sent retry=true", "accepted retry=true", "sent retry=true", "accepted retry=true"}
	if !slices.Equal(said, want) {
		t.Errorf("HEAL-2 %q, want %q", said, want)
	}
}

// A withholding is a view that withholds a listener.
type withholding struct {
	xds.Tables
	name string
}

func (v withholding) Withheld(t *xds.Type) []string {
	if t.Is(xds.Listener) {
		return []string{v.name}
	}
	return nil
}

// A full state without a refused listener cannot retry it. So the session does not wake for a retry.
func TestNoRetryOfAnOmittedResource(t *testing.T) {
	l := newLine(t, xds.SotW, xds.Listener, Options{Retry: func(*xds.Type, int) bool { t.Error("HEAL-2: asks for a permit"); return false }}, xds.Tables{xds.Listener.URL: tableOf(xds.Listener, "a")})
	l.ask(xds.Request{Type: xds.Listener})
	l.want("LDS a@1")
	l.nack(xds.Listener)
	l.Change(withholding{xds.Tables{xds.Listener.URL: xds.NewTable(xds.Listener)}, "a"}, []xds.Names{{xds.Listener.URL: {"a"}}})
	if took, said := l.next(); said != "nothing" || took > 7*time.Second || !l.Deadline().IsZero() {
		t.Errorf("HEAL-2: after %v sent %s, wakes at %v", took, said, l.Deadline())
	}
}

// A retry by the view and a retry by the session share a response. Its refusal separates the withheld listener, and the
// other one is sent again only when the view no longer tries it.
func TestRetriesOfViewAndSessionShareResponse(t *testing.T) {
	tries := ""
	l := newLine(t, xds.Delta, xds.Listener, Options{
		Retry: func(*xds.Type, int) bool { return true },
		Tried: func(*xds.Type) (string, bool) { return tries, tries != "" },
	}, nil)
	show := func(version int) {
		l.Change(withholding{xds.Tables{xds.Listener.URL: with(xds.NewTable(xds.Listener), append(resources(version, "b"), resources(1, "c")...))}, "c"},
			[]xds.Names{{xds.Listener.URL: {"b", "c"}}})
	}
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	l.want("LDS")
	l.ack(xds.Listener)
	show(2)
	l.want("LDS b@2 c@1")
	l.nack(xds.Listener)
	show(1)
	l.want("LDS b@1")
	l.ack(xds.Listener)
	tries = "b"
	l.wait(6 * time.Second)
	show(2)
	l.want("LDS b@2 c@1")
	l.nack(xds.Listener)
	l.want("")
	tries = ""
	show(1)
	l.want("LDS b@1")
	l.ack(xds.Listener)
	if took, said := l.next(); said != "LDS c@1" || took < 10*time.Second {
		t.Errorf("HEAL-2: after %v sent %s, want the retry of c", took, said)
	}
}
