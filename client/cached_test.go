package client_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Resources in use, and their removal.
func TestCachedResources(t *testing.T) {
	both(t, "behaviour 21: a new watch of a known name gets its state without a request", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		s.skip()
		watch(t, c, xds.Cluster, "a").want("a updated=1")
		s.want("", "")
	})

	gone := func(s *fakeStream, version string) {
		if s.variant == xds.SotW {
			s.respond(xds.Cluster, version, "b=1")
		} else {
			s.respond(xds.Cluster, version, "-a")
		}
	}
	both(t, "CLI-7 behaviour 22: a cluster that a response lacks is removed once for each watch", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a, b := watch(t, c, xds.Cluster, "a"), watch(t, c, xds.Cluster, "b")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		a.want("a updated=1")
		b.want("b updated=1")
		gone(s, "v2")
		gone(s, "v3")
		a.want("a removed")
		time.Sleep(time.Hour)
		a.want()
		b.want()
	})

	both(t, "CLI-3 behaviour 23: a cluster that was never there and is missing is absent after the time", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Cluster, "a", "b")
		f.stream().respond(xds.Cluster, "v1", "b=1")
		a.want("b updated=1")
		time.Sleep(15*time.Second - time.Millisecond)
		a.want()
		time.Sleep(2 * time.Millisecond)
		a.want("a absent")
	})

	both(t, "CLI-7 behaviour 24: endpoints that a response lacks are not removed", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a", "b")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1", "b=1")
		s.respond(xds.Endpoint, "v2", "b=2")
		a.take()
		time.Sleep(time.Hour)
		a.want()
		watch(t, c, xds.Endpoint, "a").want("a updated=1")
	})

	both(t, "behaviour 25: a new watch of a removed resource gets its absence, and all watches get its return", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Cluster, "a", "b")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		gone(s, "v2")
		a.take()
		late := watch(t, c, xds.Cluster, "a")
		late.want("a absent")
		s.respond(xds.Cluster, "v3", "a=1", "b=1")
		a.want("a updated=1")
		late.want("a updated=1")
	})

	both(t, "behaviour 26: a server whose deletions are ignored cannot remove a resource (A53)", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Servers: []client.Server{{Transport: f, IgnoreDeletion: true}}})
		a := watch(t, c, xds.Cluster, "a", "b")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		a.take()
		gone(s, "v2")
		a.want()
		watch(t, c, xds.Cluster, "a").want("a updated=1")
		s.respond(xds.Cluster, "v3", "a=2", "b=1")
		a.want("a updated=2")
	})

	both(t, "removed and refused resources under a wildcard are forgotten", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=1", "c=bad")
		gone(s, "v2")
		want := []string{"a updated=1", "b updated=1", "c refused: bad", "* complete", "a removed"}
		if v == xds.SotW { // SotW reports c as absent, because the response lacks c
			want = append(want, "c absent")
		}
		w.want(want...)
		for _, st := range c.Dump() {
			if st.Name == "a" {
				t.Error("a removed resource is still known")
			}
		}
	})

	both(t, "CLI-8 a TTL that ends removes", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a")
		r := resource(xds.Endpoint, "a", "1")
		r.TTL = 10 * time.Second
		s := f.stream()
		send := func(r *xds.Resource) {
			s.nonce++
			s.send(&xds.Response{Type: xds.Endpoint, Version: "v", Nonce: "x", TTL: true, Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
		}
		send(r)
		time.Sleep(9 * time.Second)
		send(r)
		time.Sleep(9 * time.Second)
		a.want("a updated=1")
		time.Sleep(2 * time.Second)
		a.want("a removed")
	})
}

// Timeouts of resources that do not arrive.
func TestAbsenceTimeout(t *testing.T) {
	both(t, "CLI-3 behaviour 27: a resource without an answer in time is absent", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Timeout: 5 * time.Second}, f)
		a := watch(t, c, xds.Endpoint, "a")
		f.stream()
		time.Sleep(4 * time.Second)
		a.want()
		time.Sleep(2 * time.Second)
		a.want("a absent")
		if d := c.Dump(); len(d) != 1 || d[0].State != client.TimedOut {
			t.Errorf("%v", d)
		}
	})

	both(t, "a negative time is for ever", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Timeout: -1}, f)
		a := watch(t, c, xds.Endpoint, "a")
		time.Sleep(24 * time.Hour)
		a.want()
	})

	both(t, "behaviour 28: a resource that arrives stops its timer", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a")
		time.Sleep(14 * time.Second)
		f.stream().respond(xds.Endpoint, "v1", "a=1")
		time.Sleep(time.Hour)
		a.want("a updated=1")
	})

	both(t, "behaviour 29: a timer begins when the request is sent, stops with the stream and begins anew with the next", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		f.fail(errDown)
		a := watch(t, c, xds.Endpoint, "a")
		time.Sleep(time.Hour)
		for _, got := range a.take() {
			if got == "a absent" {
				t.Fatal("nobody was asked")
			}
		}
		f.fail(nil)
		s := <-f.opened
		a.want()
		s.respond(xds.Endpoint, "v0") // the stream is good
		s.end(io.EOF)
		s = f.stream()
		time.Sleep(10 * time.Second)
		s.respond(xds.Endpoint, "v0")
		s.end(io.EOF)
		f.stream()
		time.Sleep(14 * time.Second)
		a.want()
		time.Sleep(2 * time.Second)
		a.want("a absent")
	})

	both(t, "a timer that is transient means unavailable after 30 s (A88)", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Servers: []client.Server{{Transport: f, TimerIsTransient: true}}})
		a := watch(t, c, xds.Endpoint, "a")
		f.stream()
		time.Sleep(29 * time.Second)
		a.want()
		time.Sleep(2 * time.Second)
		a.want("a unavailable: …")
		watch(t, c, xds.Endpoint, "a").want("a unavailable: …")
		if d := c.Dump(); d[0].State != client.TimedOut {
			t.Errorf("%v", d)
		}
	})
}

// Streams that end, and streams that cannot be opened.
func TestReconnect(t *testing.T) {
	both(t, "CLI-4 behaviour 30: a stream that ends before a response is an error, and is tried again later and later", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Timeout: -1}, f)
		a := watch(t, c, xds.Endpoint, "a")
		f.stream().end(errDown)
		a.want(`a unavailable: xds://a cannot be reached by node "n": connection refused`)
		least, most := 800*time.Millisecond, 1200*time.Millisecond
		for range 12 {
			begin := time.Now()
			s := <-f.opened
			if took := time.Since(begin); took < least || took > most {
				t.Fatalf("tried again after %v, not %v to %v", took, least, most)
			}
			s.end(errDown)
			a.want() // the outage was reported before
			least, most = min(least*16/10, 96*time.Second), min(most*16/10, 144*time.Second)
		}
	})

	both(t, "behaviour 31: a stream that ends after a response is opened again at once, without an error", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		a.want("a updated=1")
		s.end(errDown)
		a.want()
		s = f.stream() // at once
		a.want()
		s.end(errDown) // the stream ended before a response, which is an outage
		a.want("a stale=1: xds://a cannot be…")
	})

	both(t, "behaviour 31: but not without end", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Endpoint, "a")
		go func() {
			for {
				select {
				case s := <-f.opened:
					select {
					case s.responses <- response(xds.Endpoint, "v1", "1", "a=1"):
						s.ends <- io.EOF
					case <-s.ctx.Done():
					}
				case <-t.Context().Done():
					return
				}
			}
		}()
		time.Sleep(time.Minute)
		if n := f.opens.Load(); n < 30 || n > 150 {
			t.Errorf("%d streams in a minute", n)
		}
		c.Close()
	})

	both(t, "CLI-4 behaviour 32: a new stream asks for all names, with the version and without a nonce", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Endpoint, "a", "b")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1", "b=2")
		s.skip()
		s.end(io.EOF)
		f.stream().want("EDS node=n version=v1 names=[a b]", "EDS node=n sub=[a b] initial=[{a 1} {b 2}]")
	})

	both(t, "behaviour 33: resources stay in use when the stream ends, without an event", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		s.end(io.EOF)
		a.want("a updated=1")
		f.stream().respond(xds.Endpoint, "v1", "a=1")
		a.want()
		watch(t, c, xds.Endpoint, "a").want("a updated=1")
	})

	both(t, "behaviour 34: a response lets the backoff begin anew", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Endpoint, "a")
		for range 8 {
			f.stream().end(errDown)
			time.Sleep(3 * time.Minute)
		}
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		s.end(errDown)
		f.stream().end(errDown)
		time.Sleep(1201 * time.Millisecond)
		f.stream()
	})

	both(t, "after an outage a response of the type ends the stale states", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a", "b")
		wild := watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1", "b=bad")
		s.respond(xds.Cluster, "v1", "c=1")
		a.want("a updated=1", "b refused: bad")
		wild.want("c updated=1", "* complete")
		s.end(io.EOF)
		f.stream().end(errDown)
		a.want("a stale=1: xds…", "b unavailable: xds…")
		wild.want("* stale: xds…")
		watch(t, c, xds.Endpoint, "a", "b").want("a updated=1", "a stale=1: xds…", "b unavailable: xds…")
		watch(t, c, xds.Cluster, "*").want("c updated=1", "* stale: xds…")
		time.Sleep(2 * time.Second)
		s = f.stream()
		s.respond(xds.Endpoint, "v2", "b=1")
		a.want("b updated=1", "a updated=1")
		wild.want()
		s.respond(xds.Cluster, "v2", "c=1")
		wild.want("* complete")
	})

	both(t, "after an outage a silent server counts as reachable after a while", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		s.end(io.EOF)
		f.stream().end(errDown)
		a.want("a updated=1", "a stale=1: xds…")
		time.Sleep(2 * time.Second)
		f.stream()
		time.Sleep(12 * time.Second)
		a.want()
		time.Sleep(3 * time.Second)
		a.want("a updated=1")
	})
}

// Errors of resources, and their events (gRFC A88).
func TestResourceErrors(t *testing.T) {
	both(t, "behaviour 38: a NACK keeps the resource in use, if there is one", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=bad")
		a.want("a refused: bad")
		s.respond(xds.Cluster, "v2", "a=1")
		s.respond(xds.Cluster, "v3", "a=bad")
		a.want("a updated=1", "a refused=1: bad")
	})

	both(t, "behaviour 39: a repeated error is not an event, also if other resources are good", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a, b := watch(t, c, xds.Endpoint, "a"), watch(t, c, xds.Endpoint, "b")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=bad", "b=bad b")
		a.want("a refused: bad")
		b.want("b refused: bad b")
		s.respond(xds.Endpoint, "v2", "a=bad", "b=bad b")
		s.respond(xds.Endpoint, "v3", "a=bad")
		a.want()
		b.want()
		s.respond(xds.Endpoint, "v4", "a=bad", "b=bad again")
		a.want()
		b.want("b refused: bad again")
	})

	both(t, "behaviour 40: a new watch gets the good resource, then the error", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1")
		s.respond(xds.Cluster, "v2", "a=bad")
		watch(t, c, xds.Cluster, "a").want("a updated=1", "a refused=1: bad")
	})

	both(t, "behaviour 41: a lost connection keeps the resources in use", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a, b := watch(t, c, xds.Endpoint, "a"), watch(t, c, xds.Endpoint, "b")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		s.end(io.EOF)
		f.stream().end(errDown)
		a.want("a updated=1", "a stale=1: xds://a cannot be…")
		b.want("b unavailable: xds://a cannot be…")
	})

	both(t, "behaviour 41: an absent resource does not become unavailable", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		a := watch(t, c, xds.Endpoint, "a", "x")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		time.Sleep(16 * time.Second)
		a.want("a updated=1", "x absent")
		s.end(io.EOF)
		f.stream().end(errDown)
		a.want("a stale=1: xds://a cannot be…")
	})

	both(t, "behaviour 42: errors name the node, also without a channel", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		f.fail(errors.New("no such host"))
		watch(t, c, xds.Endpoint, "a").want(`a unavailable: xds://a cannot be reached by node "n": no such host`)
	})

	both(t, "behaviour 43: kinds of errors can be told apart", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		var events []client.Event
		var ends []error
		go func() {
			for ev, err := range c.Watch(t.Context(), xds.Endpoint, "nacked", "absent", "reported", "gone") {
				if err != nil {
					ends = append(ends, err)
				} else {
					events = append(events, ev)
				}
			}
		}()
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "nacked=bad", "~reported=it is forbidden", "?gone")
		time.Sleep(20 * time.Second)
		s.end(io.EOF)
		f.stream().end(errDown)
		synctest.Wait()
		kinds := map[string]client.Kind{}
		for _, ev := range events {
			if kinds[ev.Name] == 0 {
				kinds[ev.Name] = ev.Kind
			}
			if ev.Kind == client.Unavailable && ev.Err != nil {
				var conn *client.ConnectionError
				if of := errors.As(ev.Err, &conn); of != (ev.Name != "reported" || len(events) == 4) && ev.Name != "reported" {
					t.Errorf("%v: a connection error: %v", ev, of)
				}
			}
		}
		for name, want := range map[string]client.Kind{"nacked": client.Refused, "absent": client.Absent, "gone": client.Absent, "reported": client.Unavailable} {
			if kinds[name] != want {
				t.Errorf("%s: %s, not %s", name, kinds[name], want)
			}
		}
		c.Close()
		synctest.Wait()
		if len(ends) != 1 || !errors.Is(ends[0], client.ErrClosed) {
			t.Error(ends)
		}
	})

	both(t, "resource_errors keep the resource in use, unless the server has FailOnDataErrors (A88)", func(t *testing.T, v xds.Variant) {
		for _, fails := range []bool{false, true} {
			f := newFake(t, "xds://a", v)
			c := begin(t, client.Config{Servers: []client.Server{{Transport: f, FailOnDataErrors: fails, IgnoreDeletion: true}}})
			a := watch(t, c, xds.Endpoint, "a", "b", "c")
			s := f.stream()
			s.respond(xds.Endpoint, "v1", "a=1", "b=1", "c=1")
			a.want("a updated=1", "b updated=1", "c updated=1")
			s.respond(xds.Endpoint, "v2", "?a", "b=bad")
			if fails {
				got := a.take()
				if len(got) != 2 {
					t.Errorf("%q", got)
				}
				watch(t, c, xds.Endpoint, "a").want("a absent")
				watch(t, c, xds.Endpoint, "b").want("b refused: bad")
			} else {
				got := a.take()
				t.Logf("%q", got)
				watch(t, c, xds.Endpoint, "b").want("b updated=1", "b refused=1: bad")
			}
			s.respond(xds.Endpoint, "v3", "~c=broken")
			a.want("c stale=1: the server reports code 13: broken")
			c.Close()
		}
	})

	t.Run("CLI-12 the resource of an alias stays in use when another resource is refused, even with FailOnDataErrors", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, "xds://a", xds.Delta)
			c := begin(t, client.Config{Servers: []client.Server{{Transport: f, FailOnDataErrors: true}}})
			a := watch(t, c, xds.Cluster, "s")
			s := f.stream()
			for i, r := range []*xds.Resource{aliased("z", "1", "s"), aliased("x", "bad", "s")} {
				s.send(&xds.Response{Type: xds.Cluster, Nonce: string(rune('1' + i)), Changes: &xds.Changes{Upserts: []*xds.Resource{r}}})
			}
			a.want("s updated=1", "s refused=1: bad")
		})
	})
}
