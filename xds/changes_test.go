package xds

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

func TestSinceIsShared(t *testing.T) {
	old := with((&Table{}), []*Resource{named("a", "1"), named("b", "1")})
	tab := with(old, []*Resource{named("a", "2")}, "b")
	got := make([]*Changes, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = tab.Since(old.Versions()) })
	}
	wg.Wait()
	for _, c := range got {
		if c != got[0] {
			t.Fatal("two streams with the same old version get two objects")
		}
	}
	if c := got[0]; len(c.Upserts) != 1 || c.Upserts[0] != tab.Lookup("a") || len(c.Removed) != 1 || c.Removed[0] != "b" {
		t.Errorf("changes: %v, %v", c.Upserts, c.Removed)
	}
	if tab.Since(nil) == got[0] {
		t.Error("another old version has the same changes")
	}
}

// A table does not keep changes that no stream holds, and it keeps few of the old versions for which it
// computed changes.
func TestSinceDoesNotKeepUnusedChanges(t *testing.T) {
	tab := with((&Table{}), []*Resource{named("a", "1")})
	gone := make(chan bool, 1)
	func() {
		c := tab.Since(nil)
		runtime.AddCleanup(c, func(gone chan bool) { gone <- true }, gone)
	}()
	runtime.GC()
	<-gone
	if c := tab.Since(nil); len(c.Upserts) != 1 {
		t.Errorf("asked again: %v", c.Upserts)
	}
	old := &Table{}
	for i := range 500 {
		old = with(old, []*Resource{named("a", fmt.Sprint(i))})
		tab.Since(old.Versions())
	}
	if n := len(tab.since); n > 65 {
		t.Errorf("%d old versions are kept", n)
	}
}
