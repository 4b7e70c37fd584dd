package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// rang waits until no signal is under way, and reports whether the watch got one. Call it in a synctest bubble.
func rang(w *Watch) bool {
	synctest.Wait()
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

func TestWatch(t *testing.T) {
	set := func(typ *xds.Type, name, body string, aliases ...string) func(*Tx) {
		return func(tx *Tx) { tx.Set(of(typ, res(name, body, aliases...))...) }
	}
	for _, tt := range []struct {
		name string
		in   func(w *Watch)
		f    func(tx *Tx)
		want bool
	}{
		{"a name that changes", func(w *Watch) { w.Interested(xds.Cluster, false, []string{"a"}, nil) }, set(xds.Cluster, "a", "2"), true},
		{"a name that comes", func(w *Watch) { w.Interested(xds.Cluster, false, []string{"new"}, nil) }, set(xds.Cluster, "new", "1"), true},
		{"a name that goes", func(w *Watch) { w.Interested(xds.Cluster, false, []string{"a"}, nil) }, func(tx *Tx) { tx.Delete(xds.Cluster, "a") }, true},
		{"a name replaced away", func(w *Watch) { w.Interested(xds.Cluster, false, []string{"a"}, nil) }, func(tx *Tx) { tx.Replace(xds.Cluster) }, true},
		{"another name", func(w *Watch) { w.Interested(xds.Cluster, false, []string{"a"}, nil) }, set(xds.Cluster, "b", "2"), false},
		{"another type", func(w *Watch) { w.Interested(xds.Cluster, true, []string{"a"}, nil) }, set(xds.Endpoint, "a", "2"), false},
		{"another group", func(w *Watch) { w.Interested(xds.Cluster, true, []string{"a"}, nil) },
			func(tx *Tx) { tx.Group("edge").Set(of(xds.Cluster, res("a", "2"))...) }, false},
		{"the content it has", func(w *Watch) { w.Interested(xds.Cluster, true, []string{"a"}, nil) }, set(xds.Cluster, "a", "1"), false},
		{"a version only", func(w *Watch) { w.Interested(xds.Cluster, true, []string{"a"}, nil) }, func(tx *Tx) { tx.Version(xds.Cluster, "v") }, false},
		{"no interest", func(w *Watch) {}, set(xds.Cluster, "a", "2"), false},
		{"SUB-1 wildcard", func(w *Watch) { w.Interested(xds.Cluster, true, nil, nil) }, set(xds.Cluster, "b", "2"), true},
		{"SUB-1 wildcard by name", func(w *Watch) { w.Interested(xds.Cluster, true, []string{"*"}, nil) }, set(xds.Cluster, "b", "2"), true},
		{"wildcard no more", func(w *Watch) {
			w.Interested(xds.Cluster, true, nil, nil)
			w.Interested(xds.Cluster, false, nil, nil)
		}, set(xds.Cluster, "b", "2"), false},
		{"a name no more", func(w *Watch) {
			w.Interested(xds.Cluster, false, []string{"a", "b"}, nil)
			w.Interested(xds.Cluster, false, nil, []string{"a"})
		}, set(xds.Cluster, "a", "2"), false},
		{"a name still", func(w *Watch) {
			w.Interested(xds.Cluster, false, []string{"a", "b", "a"}, nil)
			w.Interested(xds.Cluster, false, nil, []string{"a", "x", "a"})
		}, set(xds.Cluster, "b", "2"), true},
		{"a name in both lists counts as added", func(w *Watch) { w.Interested(xds.Cluster, false, []string{"a"}, []string{"a"}) }, set(xds.Cluster, "a", "2"), true},
		{"NAME-2 a collection that gets a member", func(w *Watch) { w.Interested(xds.VirtualHost, false, []string{"r/*"}, nil) }, set(xds.VirtualHost, "r/a", "1"), true},
		{"NAME-2 a member of another collection", func(w *Watch) { w.Interested(xds.VirtualHost, false, []string{"r/*"}, nil) }, set(xds.VirtualHost, "s/a", "1"), false},
		{"DELTA-11 an alias that comes", func(w *Watch) { w.Interested(xds.VirtualHost, false, []string{"alias"}, nil) },
			set(xds.VirtualHost, "v", "1", "other", "alias"), true},
		{"DELTA-11 an alias that goes", func(w *Watch) { w.Interested(xds.VirtualHost, false, []string{"old"}, nil) },
			set(xds.VirtualHost, "vhost", "1"), true},
		{"DELTA-11 a resource with an alias that goes", func(w *Watch) { w.Interested(xds.VirtualHost, false, []string{"old"}, nil) },
			func(tx *Tx) { tx.Delete(xds.VirtualHost, "vhost") }, true},
		{"closed", func(w *Watch) {
			w.Interested(xds.Cluster, true, []string{"a"}, nil)
			w.Close()
			w.Close()
			w.Interested(xds.Cluster, true, []string{"a"}, nil)
		}, set(xds.Cluster, "a", "2"), false},
		{"a type that is not listed", func(w *Watch) { w.Interested(unlisted(), false, []string{"a"}, nil) }, set(unlisted(), "a", "1"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := New()
				update(t, st, func(tx *Tx) {
					tx.Set(of(xds.Cluster, res("a", "1"), res("b", "1"))...)
					tx.Set(of(xds.VirtualHost, res("vhost", "1", "old"))...)
				})
				w := watchtest.Open(t, st, nil)
				if _, touched := watchtest.Next(t, w); touched != nil {
					t.Errorf("the first view comes with the hint %v", touched)
				}
				tt.in(w)
				if rang(w) {
					t.Fatal("it rings before anything happens")
				}
				update(t, st, tt.f)
				if got := rang(w); got != tt.want {
					t.Errorf("rang: %v", got)
				}
				w.Next()
				if rang(w) {
					t.Error("it rings though Next was called")
				}
				w.Close()
				if n := len(st.groups[DefaultGroup].index.wanted); n != 0 {
					t.Errorf("%d names are still in the index after the watch was closed", n)
				}
			})
		})
	}
}

func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New(WithLog(8), WithEmptyGroups())
		w := watchtest.Open(t, st, nil)
		w.Interested(xds.Cluster, true, nil, nil)
		defer w.Close()
		next := func() (*xds.Table, []xds.Names) {
			view, touched := watchtest.Next(t, w)
			return view.Table(xds.Cluster), touched
		}
		if table, touched := next(); table.Len() != 0 || touched != nil {
			t.Errorf("first: %d resources, touched %v", table.Len(), touched)
		}
		if _, touched := next(); touched == nil || len(touched) != 0 {
			t.Errorf("nothing happened: touched %v", touched)
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("b", "1"), res("a", "1", "z", "c"))...) })
		update(t, st, func(tx *Tx) { tx.Group("edge").Set(of(xds.Cluster, res("a", "1"))...) })
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Route, res("r", "1"))...); tx.Delete(xds.Cluster, "a", "x") })
		synctest.Wait()
		table, touched := next()
		if table.Len() != 1 || table.Departed("a") == nil || len(touched) != 2 {
			t.Fatalf("%d resources, touched %v", table.Len(), touched)
		}
		if got := touched[0][xds.Cluster.URL]; !slices.Equal(got, []string{"a", "b", "c", "z"}) {
			t.Errorf("first commit touched %v", got)
		}
		if got := touched[1]; len(got) != 2 || !slices.Equal(got[xds.Cluster.URL], []string{"a", "c", "z"}) || !slices.Equal(got[xds.Route.URL], []string{"r"}) {
			t.Errorf("second commit touched %v", got)
		}
		if rang(w) {
			t.Error("the signal is still there after Next")
		}
		// A version is a change of the view, and touches no name.
		update(t, st, func(tx *Tx) { tx.Version(xds.Cluster, "v") })
		if table, touched := next(); table.Version() != "v" || len(touched) != 1 || len(touched[0]) != 0 {
			t.Errorf("version %s, touched %v", table.Version(), touched)
		}
		// Commits to other groups do not push those of this group out of the log.
		for i := range 100 {
			update(t, st, func(tx *Tx) { tx.Group("edge").Set(of(xds.Cluster, res("a", fmt.Sprint("body", i)))...) })
		}
		for i := range 8 {
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", fmt.Sprint(i)))...) })
		}
		if _, touched := next(); len(touched) != 8 {
			t.Errorf("8 commits, and the log keeps 8: touched %v", touched)
		}
		for i := range 9 {
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", fmt.Sprint(9+i)))...) })
		}
		if _, touched := next(); touched != nil {
			t.Errorf("9 commits, and the log keeps 8: touched %v, want nil", touched)
		}
		// The log does not keep the names of so large a commit, but it keeps those of the next commit.
		update(t, st, func(tx *Tx) {
			for i := range maxNames + 1 {
				tx.Set(of(xds.Cluster, res(fmt.Sprint("n", i), ""))...)
			}
		})
		if !rang(w) {
			t.Error("a large commit does not ring")
		}
		if table, touched := next(); touched != nil || table.Len() != maxNames+3 {
			t.Errorf("%d resources, %d commits", table.Len(), len(touched))
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", ""))...) })
		if _, touched := next(); len(touched) != 1 {
			t.Errorf("after a large commit: touched %v", touched)
		}
	})
}

// After a large commit the log forgets older commits, each with all its names. A watch that has not seen
// all of the forgotten commits compares tables.
func TestForgottenCommits(t *testing.T) {
	h := &head{}
	for seq := range uint64(3) {
		h = h.next(seq+1, revision{touched: xds.Names{}, count: 1}, 100)
	}
	h = h.next(4, revision{touched: xds.Names{}, count: maxNames}, 100)
	for seq := range uint64(3) {
		if h.since(seq) != nil {
			t.Errorf("it is known what came after commit %d", seq)
		}
	}
	if n := len(h.since(3)); n != 1 {
		t.Errorf("%d commits came after the third", n)
	}
}

// A large commit signals all watches, because the log does not keep its names.
func TestLargeCommitSignalsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		w, idle := watchtest.Open(t, st, nil), watchtest.Open(t, st, nil)
		defer w.Close()
		defer idle.Close()
		w.Interested(xds.Cluster, false, []string{"n7"}, nil)
		update(t, st, func(tx *Tx) {
			for i := range 2 * maxNames {
				tx.Set(of(xds.Cluster, res(fmt.Sprint("n", i), ""))...)
			}
		})
		if !rang(w) {
			t.Error("it does not ring")
		}
	})
}

// A commit between Next and Interested is not missed.
func TestInterestedAfterCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New(WithEmptyGroups())
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		w.Next()
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
		if rang(w) {
			t.Error("it rings for what nobody asked for")
		}
		w.Interested(xds.Cluster, false, []string{"a"}, nil)
		if !rang(w) {
			t.Error("the commit before is missed")
		}
		w.Next()
		w.Interested(xds.Cluster, false, []string{"a", "b"}, nil)
		if rang(w) {
			t.Error("it rings though nothing was committed since Next")
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("c", "1"))...) })
		w.Interested(xds.Cluster, false, []string{"a", "b"}, []string{"d"})
		if rang(w) {
			t.Error("it rings though it has no new interest")
		}
	})
}

func TestSelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New(WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.Cluster}, nil }))
		for _, tt := range []struct {
			node *xds.Node
			want string
		}{{nil, DefaultGroup}, {&xds.Node{}, DefaultGroup}, {&xds.Node{Cluster: "edge"}, "edge"}} {
			w := watchtest.Open(t, st, tt.node)
			if w.Group() != tt.want {
				t.Errorf("SUB-5 group %s, want %s", w.Group(), tt.want)
			}
			w.Close()
		}
		w := watchtest.Open(t, st, &xds.Node{Cluster: "edge"}) // a group that does not exist yet
		defer w.Close()
		if view, _ := watchtest.Next(t, w); view != nil {
			t.Error("it is known what is in a group that does not exist")
		}
		w.Interested(xds.Cluster, true, nil, nil)
		update(t, st, func(tx *Tx) { tx.Group("edge").Set(of(xds.Cluster, res("a", "1"))...) })
		if !rang(w) {
			t.Error("a group that comes into being does not ring")
		}
		if view, touched := watchtest.Next(t, w); view.Table(xds.Cluster).Len() != 1 || touched != nil {
			t.Errorf("touched %v", touched)
		}
	})
}

// A selector that names no group selects the default group.
func TestEmptySelectionIsTheDefaultGroup(t *testing.T) {
	st := New(WithGroups(func(context.Context, *xds.Node) ([]string, error) { return nil, nil }))
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	if got := w.Groups(); !slices.Equal(got, []string{DefaultGroup}) {
		t.Errorf("it sees the groups %q", got)
	}
}

// A new version without another change touches no name, even if the commit changes another type.
func TestVersionTouchesNoName(t *testing.T) {
	for name, groups := range map[string][]string{"a group": {DefaultGroup}, "a composite": {DefaultGroup, "edge"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := New(WithGroups(func(context.Context, *xds.Node) ([]string, error) { return groups, nil }))
				update(t, st, func(tx *Tx) {
					tx.Set(of(xds.Cluster, res("a", "1"))...)
					tx.Set(of(xds.Route, res("r", "1"))...)
					tx.Group("edge").MarkKnown()
				})
				w := watchtest.Open(t, st, nil)
				defer w.Close()
				watchtest.Next(t, w)
				w.Interested(xds.Cluster, true, nil, nil)
				update(t, st, func(tx *Tx) { tx.Version(xds.Cluster, "v"); tx.Set(of(xds.Route, res("r", "2"))...) })
				if rang(w) {
					t.Error("it rings for a version")
				}
				view, touched := watchtest.Next(t, w)
				if got := view.Table(xds.Cluster).Version(); got != "v" {
					t.Errorf("version %s", got)
				}
				if _, named := touched[0][xds.Cluster.URL]; named || len(touched) != 1 {
					t.Errorf("touched %v", touched)
				}
				update(t, st, func(tx *Tx) { tx.Version(xds.Cluster, "w") })
				if got := w.View().Table(xds.Cluster).Version(); got != "w" || rang(w) {
					t.Errorf("after a commit of only a version: version %s, want w and no signal", got)
				}
			})
		})
	}
}

// The selector is also called for nodes without an identity.
func TestSelectWithoutNode(t *testing.T) {
	st := New(WithGroups(func(context.Context, *xds.Node) ([]string, error) { return []string{"all"}, nil }))
	for name, tt := range map[string]struct {
		node *xds.Node
		want string
	}{"no node": {nil, "all"}, "a node that says nothing": {&xds.Node{}, "all"}} {
		t.Run("SUB-5 "+name, func(t *testing.T) {
			w := watchtest.Open(t, st, tt.node)
			defer w.Close()
			if w.Group() != tt.want {
				t.Errorf("group %s, want %s", w.Group(), tt.want)
			}
		})
	}
}

// Readers do not wait for a writer.
func TestReadersDoNotWait(t *testing.T) {
	st := New()
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, res("a", "2"))...)
		done := make(chan bool)
		go func() { // while this transaction runs
			defer close(done)
			w := watchtest.Open(t, st, nil)
			defer w.Close()
			w.Interested(xds.Cluster, true, []string{"a"}, nil)
			view, _ := watchtest.Next(t, w)
			if got := string(view.Table(xds.Cluster).Lookup("a").Body); got != "1" || what(st, DefaultGroup, xds.Cluster) != "a=1" {
				t.Errorf("a reader sees %q before the commit", got)
			}
			st.Log()
		}()
		<-done
	})
}

// "A second call does nothing": the watch of another stream keeps its group.
func TestClosedTwice(t *testing.T) {
	st := New(WithEmptyGroups())
	other, w := watchtest.Open(t, st, nil), watchtest.Open(t, st, nil)
	defer other.Close()
	w.Close()
	w.Close()
	if n := other.group.watches; n != 1 {
		t.Errorf("%d watches are open, want 1", n)
	}
	if n := len(other.group.index.free); n != 1 {
		t.Errorf("%d ids are free, want 1", n)
	}
	if st.groups[DefaultGroup] != other.group {
		t.Error("the group of an open watch was dropped")
	}
}
