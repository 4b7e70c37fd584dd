package client_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/xds"
)

// A resource from the disk or from another server stays in use if the active server sends an unusable
// or unreadable version of it.
func TestUnusableKeepsLastGood(t *testing.T) {
	for _, c := range []struct {
		name string
		says []string
		told []string // events of a wildcard watch
		gone bool     // b is removed in the end
	}{
		{"CLI-11 a version that is refused", []string{"a=2", "b=bad"}, []string{"a updated=2", "b refused=1: bad"}, false},
		{"CLI-11 an unreadable resource that may be b", []string{"a=2", "!unreadable"}, []string{"a updated=2"}, false},
		{"CLI-11 a response without a readable resource is not an answer", []string{"!unreadable"}, nil, false},
		{"CLI-4 a resource that the server lacks is removed when the server may have sent all", []string{"a=2"}, []string{"a updated=2"}, true},
	} {
		begun := map[string]func(t *testing.T, v xds.Variant) (*taker, *fakeStream){
			"from the disk": func(t *testing.T, v xds.Variant) (*taker, *fakeStream) {
				dir := t.TempDir()
				f := newFake(t, "xds://a", v)
				first := begin(t, client.Config{Dir: dir}, f)
				watch(t, first, xds.Cluster, "*")
				f.stream().respond(xds.Cluster, "1", "a=1", "b=1")
				first.Close()
				f = newFake(t, "xds://a", v)
				w := watch(t, begin(t, client.Config{Dir: dir}, f), xds.Cluster, "*")
				return w, f.stream()
			},
			"from another server": func(t *testing.T, v xds.Variant) (*taker, *fakeStream) {
				f, g := newFake(t, "xds://a", v), newFake(t, "xds://b", v)
				c := begin(t, client.Config{Timeout: -1}, f, g)
				w := watch(t, c, xds.Cluster, "*")
				watch(t, c, xds.Endpoint, "unknown")
				s := f.stream()
				s.respond(xds.Cluster, "1", "a=1", "b=1")
				f.fail(errDown)
				s.end(errDown)
				time.Sleep(time.Second)
				return w, g.stream()
			},
		}
		for _, where := range slices.Sorted(maps.Keys(begun)) {
			both(t, fmt.Sprint(c.name, " ", where), func(t *testing.T, v xds.Variant) {
				w, s := begun[where](t, v)
				w.take()
				s.respond(xds.Cluster, "2", c.says...)
				got := w.take()
				time.Sleep(time.Minute)
				got = append(got, w.take()...)
				want := c.told
				if c.gone {
					want = append(slices.Clone(want), "b removed")
				}
				if where == "from the disk" && len(c.told) > 0 { // the watch on two servers already got this event from the first server
					want = append(slices.Clone(want), "* complete")
				}
				slices.Sort(got)
				slices.Sort(want)
				w.compare(got, want)
				s.respond(xds.Cluster, "3", "a=3") // now the server may have sent all resources, unless the unusable version was of b
				time.Sleep(time.Minute)
				// A delta server does not send b again: it has sent it.
				if goes := slices.Contains(w.take(), "b removed"); !c.gone && goes != (v == xds.SotW) {
					t.Errorf("b goes: %v", goes)
				}
			})
		}
	}
}

// A wildcard watch is notified when a resource is removed that was refused and never in use.
func TestRemovalOfRefusedResourceUnderWildcard(t *testing.T) {
	both(t, "CLI-12 the removal of a refused resource ends the refusal for its watches", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.respond(xds.Cluster, "1", "a=bad")
		w.want("a refused: bad", "* complete")
		if v == xds.Delta {
			s.respond(xds.Cluster, "2", "-a")
		} else {
			s.respond(xds.Cluster, "2")
		}
		w.want("a absent")
	})
}

// A response without a type cannot be refused. It is logged, but not each time.
func TestResponseWithoutTypeIsLogged(t *testing.T) {
	both(t, "CLI-6 on an aggregated stream", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		var log logtest.Log
		w := watch(t, begin(t, client.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, f), xds.Cluster, "*")
		s := f.stream()
		for range 100 {
			s.skip()
			s.send(&xds.Response{Version: "1", Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{resource(xds.Cluster, "a", "1")}}})
		}
		w.want()
		if n := len(log.Lines("a response without a type is ignored")); n < 1 || n > 10 { // at growing intervals
			t.Errorf("%d lines", n)
		}
	})
}

// SAFE-1: an error in resource_errors is cut before it is stored.
func TestLongResourceError(t *testing.T) {
	both(t, "of ten megabytes", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		w := watch(t, begin(t, client.Config{}, f), xds.Cluster, "a")
		f.stream().respond(xds.Cluster, "1", "~a="+strings.Repeat("y", 10<<20))
		if got := w.take(); len(got) != 1 || len(got[0]) > 1200 || !strings.HasPrefix(got[0], "a unavailable: ") {
			t.Errorf("%d events: %.100q", len(got), got)
		}
	})
}
