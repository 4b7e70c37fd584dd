package rate

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// All clients of an owner share one rate.
func TestOwners(t *testing.T) {
	now := time.Now()
	t.Run("together the connections are as fast as one", func(t *testing.T) {
		o := NewOwners(10, 100)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 100 {
					o.Of("a", 1).Take(now, 1)
				}
			})
		}
		all.Wait()
		if d := o.Of("a", 1).Take(now, 1); d != time.Second/100 {
			t.Error(d)
		}
		if d := o.Of("b", 1).Take(now, 1); d > 0 {
			t.Error("another owner waits for them:", d)
		}
	})
	t.Run("recent owners are remembered, and a bounded number of others", func(t *testing.T) {
		o := NewOwners(10, 100)
		busy := o.find("busy")
		for i := range 1000 {
			o.find(fmt.Sprint(i))
			if i%5 == 0 && o.find("busy") != busy {
				t.Fatal("forgotten")
			}
			if n := len(o.young) + len(o.old); n > 20 {
				t.Fatalf("%d are remembered", n)
			}
		}
		if o.find("0") == nil || o.find("busy") != busy {
			t.Error("forgotten")
		}
	})
	t.Run("SAFE-9 no connection waits for ever", func(t *testing.T) {
		s := NewOwners(10, 100).Of("a", 1)
		for range 3 {
			if d := s.Take(now, 1_000_000); d != 30*time.Second {
				t.Error(d)
			}
		}
		if d := s.Take(now.Add(10*time.Second), 500); d != 25*time.Second {
			t.Error("the earlier requests are forgotten, or remembered too long:", d)
		}
	})
	t.Run("without a rate no request waits", func(t *testing.T) {
		if d := NewOwners(1, -1).Of("a", 1).Take(now, 1<<30); d != 0 {
			t.Error(d)
		}
	})
}

// If an owner exceeds its rate, a connection does not wait for the requests of another connection.
func TestParts(t *testing.T) {
	now := time.Now()
	t.Run("SAFE-9 an idle connection does not wait for the requests of its neighbours", func(t *testing.T) {
		o := NewOwners(10, 100)
		for conn := range 9 {
			for range 1000 {
				o.Of("a", conn).Take(now, 1)
			}
		}
		for i := range 50 { // a tenth of half of ten seconds' worth
			if d := o.Of("a", "good").Take(now, 1); d > 0 {
				t.Fatalf("request %d of the idle connection waits %v", i, d)
			}
		}
		if d := o.Of("a", "good").Take(now, 1); d != time.Second/10 {
			t.Errorf("one more waits %v", d)
		}
		if d := o.Of("a", 8).Take(now, 1); d != 30*time.Second {
			t.Errorf("the busy connection waits %v", d)
		}
	})
	t.Run("SAFE-9 connections share the rate of their owner equally", func(t *testing.T) {
		o := NewOwners(10, 100)
		start, got, next := now, [10]int{}, [10]time.Time{}
		for at := start; at.Before(start.Add(100 * time.Second)); at = at.Add(time.Second / 100) {
			for conn := range got { // each connection asks again as soon as it may, the last one only once a second
				if wait := next[conn]; at.Before(wait) || conn == 9 && at.Before(wait.Add(time.Second)) {
					continue
				}
				got[conn]++
				next[conn] = at.Add(max(0, o.Of("a", conn).Take(at, 1)))
			}
		}
		all := 0
		for conn, n := range got {
			all += n
			if conn == 9 && n < 90 || conn < 9 && (n < 1000 || n > 1400) {
				t.Errorf("%d came %d times", conn, n)
			}
		}
		if all < 10_900 || all > 11_700 { // 100 seconds' worth, ten at once
			t.Errorf("%d were taken", all)
		}
	})
	t.Run("SAFE-9 a client that reconnects does not get a larger share", func(t *testing.T) {
		o := NewOwners(10, 100)
		all := 0
		for conn := range 10_000 { // a hundred a second
			at := now.Add(time.Duration(conn) * time.Second / 100)
			for n := 1; n < 50; n++ {
				all++
				if o.Of("a", conn).Take(at, 1) > 0 {
					break
				}
			}
			if n := len(o.find("a").conns); n > 5000 {
				t.Fatalf("%d connections are remembered", n)
			}
		}
		if all > 15_000 { // half a million if each connection had its own rate
			t.Errorf("%d were taken within 100 s", all)
		}
	})
	t.Run("old requests do not count", func(t *testing.T) {
		o := NewOwners(10, 100)
		for conn := range 100 {
			o.Of("a", conn).Take(now, 100)
		}
		later := now.Add(time.Minute)
		if d := o.Of("a", 1).Take(later, 1000); d != 0 || len(o.find("a").conns) != 1 {
			t.Error(d, len(o.find("a").conns))
		}
		o.Of("a", 1).Take(later.Add(time.Minute), 1)
		if o.find("a").conns != nil {
			t.Error("connections are remembered although less than half of the bucket is used")
		}
	})
	t.Run("many connections share one pace", func(t *testing.T) {
		o := NewOwners(10, 1_000_000)
		o.Of("a", 0).Take(now, 6_000_000)
		for conn := range maxConns + 100 {
			o.Of("a", conn).Take(now, 1)
		}
		if n := len(o.find("a").conns); n != maxConns+1 {
			t.Error(n)
		}
	})
}
