package store

import (
	"errors"
	"runtime"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// A function that is given to Update and calls it would wait for itself. Both calls are told,
// also if the function does not look at the error, and the store goes on.
func TestUpdateInUpdate(t *testing.T) {
	set := func(name string) func(*Tx) error {
		return func(tx *Tx) error { tx.Set(of(xds.Cluster, res(name, "1"))...); return nil }
	}
	for name, others := range map[string]bool{"alone": false, "others wait": true} {
		t.Run(name, func(t *testing.T) {
			st, want := New(), "d=1"
			other := make(chan error, 1)
			_, outer := st.Update(func(tx *Tx) error {
				if others {
					go func() { _, err := st.Update(set("c")); other <- err }()
					runtime.Gosched()
				}
				tx.Set(of(xds.Cluster, res("a", "1"))...)
				if _, err := st.Update(set("b")); !errors.Is(err, errNested) {
					t.Errorf("the inner one: %v", err)
				}
				return nil
			})
			if !errors.Is(outer, errNested) {
				t.Errorf("the outer one: %v", outer)
			}
			if others {
				want = "c=1 d=1"
				if err := <-other; err != nil {
					t.Error(err)
				}
			}
			if _, err := st.Update(set("d")); err != nil || what(st, DefaultGroup, xds.Cluster) != want {
				t.Error(what(st, DefaultGroup, xds.Cluster), err)
			}
		})
	}
}

// Who waits for another transaction is not taken for one that waits for itself: neither who
// has none, nor who has one of another store.
func TestUpdateWaits(t *testing.T) {
	none := func(*Tx) error { return nil }
	for name, wait := range map[string]func(st *Store) error{
		"without one": func(st *Store) error { _, err := st.Update(none); return err },
		"with one of another store": func(st *Store) error {
			var inner error
			_, err := New().Update(func(*Tx) error { _, inner = st.Update(none); return nil })
			return errors.Join(err, inner)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st, has, ends, got := New(), make(chan bool), make(chan bool), make(chan error, 1)
			go st.Update(func(*Tx) error { close(has); <-ends; return nil })
			<-has
			go func() { got <- wait(st) }()
			for range 1000 {
				runtime.Gosched() // it looks for whom it waits
			}
			close(ends)
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d transactions are open", n)
	}
}

// One that panics, or ends its goroutine, has ended.
func TestOpenAfterPanic(t *testing.T) {
	st := New()
	func() {
		defer func() { _ = recover() }()
		st.Update(func(*Tx) error { panic("no") })
	}()
	if n := open.Load(); n != 0 || st.turn.Load() != nil {
		t.Errorf("%d transactions are open", n)
	}
}

// BenchmarkUpdateWaits is a commit for whose turn many wait: each looks at its stack.
func BenchmarkUpdateWaits(b *testing.B) {
	st, rs := New(), bodies("a")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			st.Update(func(tx *Tx) error { tx.Set(of(xds.Cluster, rs[i%len(rs)])...); return nil })
		}
	})
}
