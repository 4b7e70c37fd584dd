package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

func refusalText(r *refusal) string {
	var out []string
	for name, it := range r.members {
		out = append(out, fmt.Sprintf("%s:%s>%s", name, textOf(it.Was), textOf(it.Is)))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// DELTA-13: a refused message of a split response has only its own names.
func TestRefusalOfAPart(t *testing.T) {
	c := cargo{From: versionsOf("a1 b1 x1"), To: versionsOf("a2 b2 c1"), Items: itemsOf("d:->d1")}
	r := refusal{cargo: c, part: part{nonce: 1, lo: "b", hi: "c"}}
	if got := refusalText(&r); got != "b:b1>b2 c:->c1" {
		t.Error(got)
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": true, "d": false, "x": false} {
		if r.has(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	last := refusal{cargo: c, part: part{nonce: 2, lo: "d", hi: "d", gone: "x", last: "x"}}
	if got := refusalText(&last); got != "d:->d1 x:x1>-" {
		t.Error(got)
	}
}

// Accepted names and unsubscribed names leave a refusal. An unsubscribed name counts as a change
// for the other members. For these, the states before the refusal stay known, also for removals.
func TestRefusalTake(t *testing.T) {
	for _, c := range []struct{ out, left string }{
		{"", "a:a1>a2 b:->b1 x:x1>-"},
		{"z", "a:a1>a2 b:->b1 x:x1>-"},
		{"a", "b:->b1 x:x1>-"},
		{"a b b", "x:x1>-"},
		{"b x", "a:a1>a2"},
		{"a b x", ""},
	} {
		for _, given := range []bool{false, true} {
			r := refusal{cargo: cargo{From: versionsOf("a1 x1"), To: versionsOf("a2 b1")}, part: part{nonce: 7, lo: "a", hi: "b", gone: "x", last: "x"}, left: 3}
			for name := range strings.FieldsSeq(c.out) {
				r.take(name, given)
				if r.has(name) || r.moves(name) != (given && name != "z") {
					t.Errorf("DELTA-15 %s of %q: %v, %v", name, c.out, r.has(name), r.moves(name))
				}
			}
			if got := refusalText(&r); got != c.left || r.left != len(strings.Fields(c.left)) {
				t.Errorf("%q: %s, %d", c.out, got, r.left)
			}
		}
	}
}

// Two refusals become one. A name in both keeps the state before both refusals and the state in the
// later refusal.
func TestMergeRefusals(t *testing.T) {
	a := list(itemsOf("a:a1>a2 b:b1>b2"), 1, true)
	b := list(itemsOf("b:b2>b3 c:->c1"), 2, false)
	m := merge(a, b)
	if got := refusalText(&m); got != "a:a1>a2 b:b1>b3 c:->c1" || m.nonce != 2 {
		t.Error(got, m.nonce)
	}
	// The merged refusal is retold only if both refusals were.
	for _, retold := range [][3]bool{{false, false, false}, {true, false, false}, {false, true, false}, {true, true, true}} {
		a.retold, b.retold = retold[0], retold[1]
		if m := merge(a, b); m.retold != retold[2] {
			t.Error(retold)
		}
	}
	// The merged refusal is retried at the earlier time.
	soon, later := time.Unix(1, 0), time.Unix(2, 0)
	for _, at := range [][3]time.Time{{soon, later, soon}, {later, soon, soon}, {{}, later, later}, {later, {}, later}, {}} {
		a.retryAt, b.retryAt = at[0], at[1]
		if m := merge(a, b); !m.retryAt.Equal(at[2]) {
			t.Errorf("HEAL-2 retries at %v and %v: retried at %v", at[0], at[1], m.retryAt)
		}
	}
	// A former member of one refusal that is in the other is a member. A new subscription to an
	// unsubscribed name counts as a change. A new subscription to an accepted name does not.
	for _, c := range []struct{ a, b, moves, left string }{
		{"+e", "+f", "a b c d e f", "a b c d"},
		{"+e -d", "+f -c", "a b d c e f", "a b c d"},
		{"+e -a -d", "", "b c d e f", "b c d f"},
		{"", "+c -f", "a b c d e", "a b c d e"},
		{"+a", "-f +b", "a b c d e", "c d e"},
	} {
		a, b := list(itemsOf("a:a1>a2 c:c1>c2 d:d1>d2 e:e1>e2"), 1, false), list(itemsOf("b:b1>b2 c:c1>c2 d:d1>d2 f:f1>f2"), 2, false)
		for r, out := range map[*refusal]string{&a: c.a, &b: c.b} {
			for o := range strings.FieldsSeq(out) {
				r.take(o[1:], o[0] == '+')
			}
		}
		m := merge(a, b)
		var left []string
		for name := range m.members {
			left = append(left, name)
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if m.moves(name) != strings.Contains(c.moves, name) {
				t.Errorf("DELTA-15 %q %q: %s moves it: %v", c.a, c.b, name, m.moves(name))
			}
		}
		if got := strings.Join(left, " "); got != c.left || m.left != len(left) {
			t.Errorf("DELTA-15 %q %q: %s, %d", c.a, c.b, got, m.left)
		}
	}
}

// DELTA-15 beyond the limit: each of seventeen refusals is still held back. If a name of one of the
// two oldest refusals changes, the names of the other are sent, too.
func TestMoreThanMaxRefusals(t *testing.T) {
	const n = maxRefusals + 1
	names := numbered(n + 1)
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, names...)})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: names})
	l.settle()
	for _, name := range names[:n] {
		l.commit(xds.Endpoint, resources(2, name))
		l.want("EDS " + name + "@2")
		l.nack(xds.Endpoint)
	}
	u := l.subs[0]
	if len(u.refusals) != maxRefusals {
		t.Fatalf("SAFE-1: %d refusals", len(u.refusals))
	}
	if got := refusalText(&u.refusals[0]); got != "name-00000:name-000001>name-000002 name-00001:name-000011>name-000012" {
		t.Error(got)
	}
	l.commit(xds.Endpoint, resources(2, names[n])) // another name changes: no refused name is sent
	l.want("EDS " + names[n] + "@2")
	l.ack(xds.Endpoint)
	l.commit(xds.Endpoint, resources(3, names[0]))
	l.want("EDS name-00000@3 name-00001@2")
	l.ack(xds.Endpoint)
	if len(u.refusals) != maxRefusals-1 {
		t.Errorf("%d refusals are left", len(u.refusals))
	}
	l.commit(xds.Endpoint, resources(3, names[5]))
	l.want("EDS name-00005@3")
}

// After a NACK the names of the response are not sent until one of them changes. Names that were
// sent since then, or are unwanted, are not sent once more.
func TestRetell(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(l *line)
		want string
	}{
		{"DELTA-15 nothing changes", func(*line) {}, ""},
		{"DELTA-15 another name changes", func(l *line) { l.commit(xds.Endpoint, resources(3, "z")) }, "EDS z@3"},
		{"DELTA-15 one of them changes", func(l *line) { l.commit(xds.Endpoint, resources(3, "a")) }, "EDS a@3 b@2"},
		{"DELTA-15 one of them is deleted", func(l *line) { l.commit(xds.Endpoint, nil, "a") }, "EDS b@2 -a"},
		{"DELTA-15 one is subscribed again", func(l *line) { l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"b"}}) }, "EDS a@2 b@2"},
		{"DELTA-15 one is unsubscribed, the other changes", func(l *line) {
			l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"b"}})
			l.commit(xds.Endpoint, resources(3, "a"))
		}, "EDS a@3"},
		{"DELTA-15 all are unsubscribed", func(l *line) {
			l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a", "b"}})
			if n := len(l.subs[0].refusals); n != 0 {
				t.Errorf("%d refusals are remembered", n)
			}
		}, ""},
		{"SOTW-21 a revert to the accepted state", func(l *line) { l.commit(xds.Endpoint, resources(1, "a")) }, "EDS a@1 b@2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b", "z")})
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "z"}})
			l.settle()
			l.commit(xds.Endpoint, resources(2, "a", "b"))
			l.want("EDS a@2 b@2")
			l.nack(xds.Endpoint)
			l.want("")
			c.do(l)
			l.want(c.want)
			if c.want == "" {
				return
			}
			l.ack(xds.Endpoint)
			l.commit(xds.Endpoint, resources(4, "z"))
			l.want("EDS z@4")
			l.ack(xds.Endpoint)
			if got := l.held(xds.Endpoint); got != "" && c.name != "DELTA-15 another name changes" {
				t.Errorf("after all names were sent again and accepted, the refusals hold %s", got)
			}
		})
	}
}

// Only an ACK of names that were sent after a refusal ends the refusal. A late ACK of an older
// response does not end it, nor does an ACK of other names.
func TestOnlyNewerStateSettlesRefusal(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b"}})
	l.settle()
	step := func(version int, name string) string {
		l.commit(xds.Endpoint, resources(version, name))
		l.wait(patience)
		l.want(fmt.Sprintf("EDS %s@%d", name, version))
		return l.last[xds.Endpoint.URL]
	}
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: step(2, "b"), Error: &xds.Status{}})
	older := step(2, "a")
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: step(3, "a"), Error: &xds.Status{}})
	u := l.subs[0]
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: older})
	if len(u.refusals) != 2 {
		t.Fatal("a late ACK of an older response settles the refusal")
	}
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: step(3, "b")})
	if len(u.refusals) != 1 {
		t.Fatal("an ACK of other names settles the refusal")
	}
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: step(4, "a")})
	if len(u.refusals) != 0 {
		t.Fatal("an ACK of the names sent again does not settle the refusal")
	}
}

// DELTA-13: if a response sends refused names again, each message settles its own names.
func TestPartSettlesOwnNames(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{MaxResponse: 200}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b", "c")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "c"}})
	l.settle()
	l.commit(xds.Endpoint, resources(2, "a", "b"))
	for _, r := range l.drain() {
		l.ask(xds.Request{Type: xds.Endpoint, Nonce: r.Nonce, Error: &xds.Status{}})
	}
	l.commit(xds.Endpoint, resources(3, "a", "b"))
	all := l.drain()
	u := l.subs[0]
	if len(all) != 2 || len(u.refusals) != 2 {
		t.Fatal(len(all), len(u.refusals))
	}
	for i, r := range all {
		l.ask(xds.Request{Type: xds.Endpoint, Nonce: r.Nonce})
		if len(u.refusals) != 1-i {
			t.Errorf("after message %d: %d refusals", i, len(u.refusals))
		}
	}
}

// 1,000 commits after a NACK: names that were added and removed, without references, are released
// one by one. The session used to keep these names and to sort them for each response.
func TestChurnBehindANACK(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run("ADS-3 "+v.String(), func(t *testing.T) {
			l := newLine(t, v, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "keep"), xds.Listener.URL: tableOf(xds.Listener, "l")})
			l.ask(xds.Request{Type: xds.Cluster})
			l.ask(xds.Request{Type: xds.Listener})
			l.settle()
			l.commit(xds.Listener, resources(2, "l"))
			l.want("LDS l@2")
			l.nack(xds.Listener)
			names := numbered(1001)
			const step = 200
			var allocs, bytes [5]float64 // of 1,000 commits
			for i := range allocs {
				bytes[i] = float64(countBytes(func() {
					allocs[i] = countAllocs(func() {
						for j := i * step; j < (i+1)*step; j++ {
							l.commit(xds.Cluster, resources(1, names[j+1]), names[j])
							l.settle()
						}
					})
				}))
			}
			if len(l.subs[0].leaving) > 0 || l.subs[0].Set.Len() > 0 {
				t.Errorf("%d names are leaving, %d entries", len(l.subs[0].leaving), l.subs[0].Set.Len())
			}
			for what, n := range map[string][5]float64{"allocations": allocs, "bytes": bytes} {
				if n[4] < n[0]*0.8 || n[4] > n[0]*1.2 {
					t.Errorf("%d commits: the number of %s for each is %v", step, what, n)
				}
			}
		})
	}
}

// 1,000 commits, each refused: the memory grows, but not the cost of a commit. A new list of all
// refused names used to be built each time.
func TestEachCommitIsRefused(t *testing.T) {
	within := func(what string, first, now uint64) {
		if now > first+first/5 {
			t.Errorf("%s: a commit took %d bytes first, and now %d", what, first, now)
		}
	}
	names := numbered(1000)
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, names...)})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{xds.Wildcard}})
	l.settle()
	const step = 100
	var first uint64
	for i := 0; i < len(names); i += step {
		bytes := countBytes(func() {
			for _, n := range names[i : i+step] {
				l.commit(xds.Endpoint, resources(2, n))
				l.want("EDS " + n + "@2")
				l.nack(xds.Endpoint)
			}
		}) / step
		if first == 0 {
			first = bytes
		}
		within(fmt.Sprintf("DELTA-15 after %d", i), first, bytes)
	}
	u := l.subs[0]
	if len(u.refusals) != maxRefusals {
		t.Errorf("%d refusals", len(u.refusals))
	}
	for _, n := range names {
		if !slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(n) }) {
			t.Fatalf("DELTA-15: the refusal of %s is forgotten", n)
		}
	}
}

// When refusals are merged, the newest refusals stay separate for the longest time, because their
// content matters most.
func TestJoinedRefusals(t *testing.T) {
	u := newSubscription(nil)
	join := func(sizes ...int) (left []int) {
		u.refusals = nil
		for i, n := range sizes {
			var items []item
			for k := range n {
				items = append(items, item{Name: fmt.Sprint(i, ".", k), Was: absent, Is: &xds.Stamp{}})
			}
			u.refusals = append(u.refusals, list(items, uint64(i+1), false))
		}
		u.joinRefusals()
		for i := range u.refusals {
			n := 0
			for range u.refusals[i].members {
				n++
			}
			left = append(left, n)
		}
		return left
	}
	for _, tt := range [][2][]int{
		{{1, 1, 1}, {2, 1}},
		{{2, 1, 1}, {2, 2}},
		{{4, 2, 2, 1}, {4, 4, 1}},
		{{1, 5, 1}, {6, 1}},
		{{3, 2, 1}, {3, 3}},
	} {
		if got := join(tt[0]...); !slices.Equal(got, tt[1]) {
			t.Errorf("DELTA-15: %v was merged to %v, want %v", tt[0], got, tt[1])
		}
	}
}

// DELTA-13: each message has its own answer, in any order. Refusals are kept in the order of their
// responses.
func TestRefusedInAnyOrder(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
	l.want("EDS a@1")
	first := l.last[xds.Endpoint.URL]
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"b"}})
	l.want("EDS b@1")
	l.nack(xds.Endpoint)
	l.last[xds.Endpoint.URL] = first
	l.nack(xds.Endpoint)
	if u := l.subs[0]; len(u.refusals) != 2 || !u.refusals[0].has("a") || !u.refusals[1].has("b") {
		t.Error(u.refusals)
	}
}

// SAFE-1: with many refused names, the cost of a request is the number of names that it drops or
// accepts.
func TestRefusedNamesAreCheap(t *testing.T) {
	run := func(n int, again bool, req func(name, nonce string) xds.Request) time.Duration {
		names := numbered(n)
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, names...)})
		nonce := l.talk(xds.Request{Type: xds.Endpoint, Nonce: l.talk(xds.Request{Type: xds.Endpoint, Subscribe: names}), Error: &xds.Status{}})
		if again {
			l.talk(xds.Request{Type: xds.Endpoint, Subscribe: names[:1]}) // all refused names are sent again, without an answer
		}
		took := computing(func() {
			for _, name := range names {
				nonce = l.talk(req(name, nonce))
			}
		})
		if l.talk(xds.Request{Type: xds.Endpoint, Nonce: nonce}); len(l.subs[0].refusals) > 0 {
			t.Errorf("%d of %d names are refused", l.subs[0].refusals[0].left, n)
		}
		return took
	}
	t.Run("dropped", func(t *testing.T) {
		req := func(name, _ string) xds.Request { return xds.Request{Type: xds.Endpoint, Unsubscribe: []string{name}} }
		grows(t, 25, func() time.Duration { return run(500, false, req) }, func() time.Duration { return run(4000, false, req) })
	})
	t.Run("accepted", func(t *testing.T) {
		req := func(name, nonce string) xds.Request {
			return xds.Request{Type: xds.Endpoint, Subscribe: []string{name}, Nonce: nonce}
		}
		grows(t, 25, func() time.Duration { return run(500, true, req) }, func() time.Duration { return run(4000, true, req) })
	})
}

// SAFE-9: "What a client can make the server hold or do is bounded per stream": subscriptions to
// missing names, dropped again without end, leave nothing behind if the client refuses the
// responses. If it never answers, the stream ends.
func TestMissingNamesLeaveNothing(t *testing.T) {
	const many = 50
	for _, first := range [][]string{{"a"}, {"*", "a"}} {
		for _, refuses := range []bool{false, true} {
			t.Run(fmt.Sprintf("SAFE-9 %q refuses %v", first, refuses), func(t *testing.T) {
				l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "a")})
				say := func(req xds.Request) {
					req.Type = xds.Cluster
					l.ask(req)
					if said := l.drain(); refuses && len(said) > 0 {
						l.nack(xds.Cluster)
					}
				}
				say(xds.Request{Subscribe: first})
				for round := 0; round < 80 && l.Err() == nil; round++ {
					var names []string
					for i := range many {
						names = append(names, fmt.Sprint("none-", round, "-", i))
					}
					say(xds.Request{Subscribe: append([]string{"a"}, names...)})
					say(xds.Request{Unsubscribe: names})
					l.wait(patience + time.Second)
					l.drain()
				}
				if !refuses {
					if l.Err() == nil {
						t.Error("the stream does not end")
					}
					return
				}
				kept := l.subs[0].Set.Len()
				for _, d := range l.subs[0].deliveries {
					kept += len(d.Items)
				}
				for _, r := range l.subs[0].refusals {
					kept += len(r.Items) + len(r.out)
				}
				if most := 2 * (maxInFlight + maxRefusals) * (many + 2); kept > most {
					t.Errorf("%d of %d requested names are kept, want at most %d", kept, 80*many, most)
				}
			})
		}
	}
}

// SAFE-9: "What a client can make the server hold or do is bounded": a client that refuses each
// response leaves nothing behind for names that were added and removed.
func TestRefusedChurnLeavesNothing(t *testing.T) {
	for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint} {
		names := numbered(500)
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{typ.URL: tableOf(typ, names[0])})
		l.ask(xds.Request{Type: typ, Subscribe: []string{"*"}})
		for i := range names[1:] {
			l.drain()
			l.nack(typ)
			l.commit(typ, resources(1, names[i+1]), names[i])
		}
		kept := 0
		for _, r := range l.subs[0].refusals {
			kept += len(r.Items) + len(r.out)
		}
		if most := (maxRefusals + 2) * (maxRefusals + 2); kept > most {
			t.Errorf("%s: %d names are kept, want at most %d", typ, kept, most)
		}
	}
}

// SAFE-9: names whose removal the client refuses are kept, because the client holds them. More than
// MaxNames such names end the stream. On the next stream the client states the resources that it
// holds.
func TestRefusedRemovalsAreBounded(t *testing.T) {
	const most = 20
	for _, v := range []xds.Variant{xds.Delta, xds.SotW} {
		// SotW does not report that an assignment is removed, so the client refuses nothing.
		l := newLine(t, v, nil, Options{MaxNames: most}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a")})
		req := xds.Request{Type: xds.Endpoint, Subscribe: []string{"*"}}
		if v == xds.SotW {
			req = xds.Request{Type: xds.Endpoint, Names: []string{"*"}}
		}
		l.ask(req)
		answer := func(status *xds.Status) error {
			if len(l.drain()) == 0 {
				return l.Receive(xds.Request{Type: xds.Endpoint, Names: req.Names})
			}
			return l.Receive(xds.Request{Type: xds.Endpoint, Names: req.Names, Nonce: l.last[xds.Endpoint.URL], Error: status})
		}
		ended := false
		for i := 0; i < 4*most && !ended; i++ {
			name := fmt.Sprint("x", i)
			l.commit(xds.Endpoint, resources(1, name))
			err := answer(nil)
			if err == nil {
				l.commit(xds.Endpoint, nil, name)
				err = answer(&xds.Status{})
			}
			if ended = errors.Is(err, ErrLimit); ended && i < most || err != nil && !ended {
				t.Errorf("%v: after %d names, %d may be kept: %v", v, i, most, err)
			}
		}
		if !ended {
			t.Errorf("%v: the stream continues with %d names", v, 4*most)
		}
	}
}

// DELTA-15, ADS-6: refused names are sent again when one of them changes. A name that waits for a
// cluster is sent after the ACK of the cluster, whatever else was sent meanwhile.
func TestRefusedNameWaitsForCluster(t *testing.T) {
	many := numbered(70)
	view := xds.Tables{
		xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), resources(1, "c")),
		xds.Listener.URL: with(xds.NewTable(xds.Listener), append(resources(1, append(many, "l2")...), resource("l1", 1, xds.Ref{Type: xds.Cluster, Name: "c"}))),
	}
	l := newLine(t, xds.Delta, nil, Options{}, view)
	l.ask(xds.Request{Type: xds.Cluster})
	l.drain()
	l.ack(xds.Cluster)
	l.ask(xds.Request{Type: xds.Listener})
	l.drain()
	l.ack(xds.Listener)
	l.commit(xds.Listener, []*xds.Resource{resource("l1", 2, xds.Ref{Type: xds.Cluster, Name: "c"}), resource("l2", 2)})
	l.drain()
	l.nack(xds.Listener)
	l.drain()
	l.commit(xds.Cluster, resources(2, "c"))
	l.drain() // c, not answered yet
	l.commit(xds.Listener, resources(3, "l2"))
	l.drain() // l2 alone: l1 waits
	l.ack(xds.Listener)
	l.drain()
	l.ask(xds.Request{Type: xds.Listener, Subscribe: many})
	l.drain()
	l.ack(xds.Listener)
	l.ack(xds.Cluster)
	for _, r := range l.drain() {
		for _, is := range r.Changes.Upserts {
			if r.Type.Is(xds.Listener) && is.Name == "l1" {
				return
			}
		}
	}
	t.Error("l1 is not sent again")
}

// DELTA-13, DELTA-15: a part is refused after one of its names was sent again. When the client
// accepts this name, no refusal is left, although the other parts are unanswered.
func TestRefusedPartResentIsForgotten(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{MaxResponse: 1}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b", "c")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "c"}})
	l.drain()
	l.commit(xds.Endpoint, resources(2, "b"))
	l.wait(patience)
	l.drain()
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: "2", Error: &xds.Status{}})
	if n := len(l.subs[0].refusals); n != 1 {
		t.Fatalf("%d refusals", n)
	}
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: "4"})
	if n := len(l.subs[0].refusals); n != 0 {
		t.Errorf("%d refusals are left, with %d names", n, l.subs[0].refusals[0].left)
	}
}
