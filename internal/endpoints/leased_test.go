package endpoints

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// granted returns the number of leases.
func (r *testRegistry) granted() int {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	if len(r.engine.leases.by) != len(r.engine.leases.due) {
		return -1
	}
	return len(r.engine.leases.by)
}

// No lease stays empty: none is granted before there is something to put, and one whose keys are gone or
// under another lease ends.
func TestEmptyLeasesAreRevoked(t *testing.T) {
	r := start(t, "", Options{PerCluster: 2})
	ctx, x := t.Context(), Cluster{Name: "x"}
	is := func(what string, want int) {
		t.Helper()
		if n := r.granted(); n != want {
			t.Errorf("%s: %d leases, want %d", what, n, want)
		}
	}
	put := func(ttl time.Duration, all ...Registered) error {
		_, err := r.Put(ctx, x, all, ttl)
		return err
	}
	if err := put(time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := put(time.Hour, at(0), at(1), at(2)); err == nil {
		t.Error("three endpoints")
	}
	is("nothing was put", 0)
	for i := range 100 {
		if err := put(time.Hour+time.Duration(i)*time.Second, at(0)); err != nil {
			t.Fatal(err)
		}
	}
	is("one endpoint with other lease times", 1)
	var writing sync.WaitGroup
	for i := range 8 {
		writing.Go(func() {
			for n := range 50 {
				if err := put(2*time.Hour+time.Duration(100*i+n)*time.Second, at(0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	is("one endpoint with several writers", 1)
	if err := put(time.Hour, at(0), at(1)); err != nil {
		t.Fatal(err)
	}
	if err := put(2*time.Hour, at(0)); err != nil {
		t.Fatal(err)
	}
	is("one of two endpoints gets another lease", 2)
	if _, err := r.Remove(ctx, x); err != nil {
		t.Fatal(err)
	}
	is("all were removed", 0)
	if err := put(time.Hour, at(0)); err != nil {
		t.Fatal(err)
	}
	if err := put(0, at(0)); err != nil {
		t.Fatal(err)
	}
	is("the endpoint has no lease any more", 0)
}

// A session gets a lease at its first put, and keeps it while it runs, even when empty. At its end an
// empty lease ends; other registrations stay for their time.
func TestSessionKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{})
		ctx, x := t.Context(), Cluster{Name: "x"}
		is := func(what string, leases, sees int) {
			t.Helper()
			if n := r.granted(); n != leases {
				t.Errorf("%s: %d leases, want %d", what, n, leases)
			}
			if n := r.sees("x"); n != sees {
				t.Errorf("%s: sees %d, want %d", what, n, sees)
			}
		}
		begin := func() *Session {
			s, err := r.Session(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		apply := func(s *Session, ops ...Op) {
			t.Helper()
			if err := s.KeepAlive(ctx); err != nil {
				t.Fatal(err)
			}
			if errs, err := s.Apply(ctx, ops); err != nil || len(errs) != 0 {
				t.Fatal(errs, err)
			}
		}
		e := at(0).Endpoint
		one, none := Op{Cluster: x, Endpoint: &e}, Op{Cluster: x, ID: "10.0.0.1:80"}
		s := begin()
		apply(s)
		apply(s, none)
		is("nothing was put", 0, -1)
		apply(s, one)
		apply(s, none)
		is("it goes on", 1, 0)
		time.Sleep(40 * time.Second)
		apply(s, one)
		time.Sleep(40 * time.Second)
		apply(s, Op{Cluster: x, Replace: []Registered{at(0)}})
		is("it goes on", 1, 1)
		other := begin()
		apply(other, one)
		is("both go on", 2, 1)
		apply(s)
		s.End(ctx)
		is("a session that ends without registrations", 1, 1)
		other.End(ctx)
		is("the other, with something", 1, 1)
		apply(begin(), one)
		is("another session has put the same endpoint", 1, 1)
		if _, err := r.Put(ctx, x, []Registered{at(0)}, time.Hour); err != nil {
			t.Fatal(err)
		}
		is("a session that becomes empty continues", 2, 1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		is("without a renewal", 1, 1)

		lost := begin()
		apply(lost, Op{Cluster: Cluster{Name: "y"}, Endpoint: &e})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if err := lost.KeepAlive(ctx); !errors.Is(err, ErrNoLease) {
			t.Error(err)
		}
		apply(lost, Op{Cluster: Cluster{Name: "y"}, Endpoint: &e})
		if len(r.held) != 2 {
			t.Errorf("%d leases are of sessions", len(r.held)) // a session was never ended
		}
		lost.End(ctx)
		is("the endpoint that lost its lease has another one", 2, 1)
	})
}

// A put under a lease that was revoked meanwhile gets another lease.
func TestPutWhenTheLeaseIsRevoked(t *testing.T) {
	r := start(t, "", Options{})
	ctx, x := t.Context(), Cluster{Name: "x"}
	if _, err := r.Put(ctx, x, []Registered{at(0)}, time.Hour); err != nil {
		t.Fatal(err)
	}
	r.engine.Revoke(ctx, []LeaseID{1, 2}) // one has a key, the other does not exist
	if n := r.granted(); n != 1 {
		t.Fatal(n)
	}
	s, err := r.Session(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.lease = 2
	if _, err := s.Apply(ctx, []Op{{Cluster: x, Replace: []Registered{at(1)}}}); !errors.Is(err, ErrNoLease) {
		t.Fatal(err)
	}
	if _, err := s.Apply(ctx, []Op{{Cluster: x, Replace: []Registered{at(1)}}}); err != nil || r.sees("x") != 1 || r.granted() != 1 {
		t.Error(err, r.sees("x"), r.granted())
	}
}
