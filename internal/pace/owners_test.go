package pace

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// All that an owner's clients do has one pace.
func TestOwners(t *testing.T) {
	now := time.Now()
	t.Run("they come as fast together as one would", func(t *testing.T) {
		o := NewOwners(10, 100)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 100 {
					o.Of("a").Take(now, 1)
				}
			})
		}
		all.Wait()
		if d := o.Of("a").Take(now, 1); d != time.Second/100 {
			t.Error(d)
		}
		if d := o.Of("b").Take(now, 1); d > 0 {
			t.Error("another waits for them:", d)
		}
	})
	t.Run("those that come are remembered, and a bounded number of others", func(t *testing.T) {
		o := NewOwners(10, 100)
		busy := o.Of("busy")
		for i := range 1000 {
			o.Of(fmt.Sprint(i))
			if i%5 == 0 && o.Of("busy") != busy {
				t.Fatal("forgotten")
			}
			if n := len(o.young) + len(o.old); n > 20 {
				t.Fatalf("%d are remembered", n)
			}
		}
		if o.Of("0") == nil || o.Of("busy") != busy {
			t.Error("forgotten")
		}
	})
	t.Run("SAFE-9 nobody waits for ever", func(t *testing.T) {
		s := NewOwners(10, 100).Of("a")
		if d := s.Take(now, 1_000_000); d != 30*time.Second {
			t.Error(d)
		}
		if d := s.Take(now.Add(10*time.Second), 500); d != 25*time.Second {
			t.Error("what came before is forgotten, or remembered too long:", d)
		}
	})
	t.Run("without a rate nobody waits", func(t *testing.T) {
		if d := NewOwners(1, -1).Of("a").Take(now, 1<<30); d != 0 {
			t.Error(d)
		}
	})
}
