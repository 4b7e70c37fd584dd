package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

func TestRingPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Log("SAFE-8 a group whose doorbells cannot be rung harms no other")
		var log bytes.Buffer
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		before, st := panics.Count(), New()
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		w.Interested(xds.Cluster, true, nil, nil)
		st.mu.Lock()
		st.ring(&group{name: "broken"}, news{}) // without a head
		st.mu.Unlock()
		synctest.Wait()
		if n := panics.Count() - before; n != 1 {
			t.Errorf("%d panics", n)
		}
		if got := log.String(); strings.Count(got, "doorbells of a group") != 1 || !strings.Contains(got, "group=broken") {
			t.Errorf("the log has %s", got)
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
		synctest.Wait()
		select {
		case <-w.C():
		default:
			t.Error("no doorbell rings any more")
		}
		if n := panics.Count() - before; n != 1 || strings.Count(log.String(), "msg=panic") != 1 {
			t.Errorf("%d panics: %s", n, &log)
		}
	})
}

// SOTW-6: a watch that has already seen a commit is not signalled for it.
func TestNoSignalForSeenCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		w.Interested(xds.Cluster, true, nil, nil)
		rings := func() bool {
			select {
			case <-w.C():
				return true
			default:
				return false
			}
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
		synctest.Wait()
		if w.group.ring(news{}); !rings() {
			t.Error("it does not ring")
		}
		w.Next()
		if w.group.ring(news{}); rings() {
			t.Error("it rings for what was seen")
		}
	})
}

// Each of many watches is signalled for a commit that concerns it: with a name of its own, and with more names
// than the log remembers.
func TestSignalsEveryWatch(t *testing.T) {
	for _, n := range []int{1, 32, 33, 63, batch, batch + 1, 2*batch + 40} {
		synctest.Test(t, func(t *testing.T) {
			st := New()
			var all []*Watch
			for range n {
				w := watchtest.Open(t, st, nil)
				defer w.Close()
				w.Interested(xds.Cluster, false, []string{"a"}, nil)
				all = append(all, w)
			}
			wantAll := func(why string) {
				t.Helper()
				for i, w := range all {
					if !rang(w) {
						t.Fatalf("%s: watch %d of %d hears of nothing", why, i, n)
					}
					w.Next()
				}
			}
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
			wantAll("one name")
			update(t, st, func(tx *Tx) {
				for i := range maxNames + 1 {
					tx.Notify(xds.Cluster, fmt.Sprint(i))
				}
			})
			wantAll("many names")
		})
	}
}
