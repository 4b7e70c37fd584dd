package revsource

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A client comes from another server, where it got the last form of a cluster. The new server has missed
// that form, and the cluster is now removed. The client keeps the cluster for a while (make before
// break), and never gets an older form.
func TestMissedRevision(t *testing.T) {
	cluster := func(name, content string) *revisions.Item {
		b, err := proto.Marshal(&clusterv3.Cluster{Name: name, AltStatName: content})
		if err != nil {
			t.Fatal(err)
		}
		return &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, name, b)}
	}
	for _, more := range []int{0, 3} { // further revisions that change something else
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			writer := revisions.Open(engine(t, dir), revisions.Options{})
			base := &revisions.Snapshot{}
			commit := func(items ...*revisions.Item) {
				t.Helper()
				var err error
				if base, err = writer.Commit(t.Context(), base, base.To(items), revisions.Note{}); err != nil {
					t.Fatal(err)
				}
			}
			type replica struct {
				*Source
				load  func()
				visit func(before *xdstest.Client) *xdstest.Client
			}
			start := func() *replica {
				st := store.New()
				r := &replica{Source: New(engine(t, dir), st, Options{Log: slog.New(slog.DiscardHandler)})}
				r.load = func() {
					t.Helper()
					if at, err := r.Load(t.Context()); err != nil || at.Number != base.Revision.Number {
						t.Fatal(at.Number, err)
					}
				}
				conn := xdstest.Serve(t, server.New(st, server.WithLogger(slog.New(slog.DiscardHandler))))
				r.visit = func(before *xdstest.Client) *xdstest.Client {
					c := xdstest.SotW(t, conn, xdstest.WithTimeout(time.Minute))
					if before == nil {
						c.Subscribe(xds.Cluster, xds.Wildcard)
					} else {
						c.Resume(xds.Cluster, before)
					}
					return c
				}
				return r
			}
			a, b := start(), start()
			commit(cluster("gone", "1"), cluster("stays", "1"))
			a.load()
			commit(cluster("gone", "2"), cluster("stays", "2"))
			b.load()
			c := b.visit(nil)
			c.ACK(c.Expect(xds.Cluster, "gone", "stays"))
			c.Close()
			commit(cluster("stays", "2"))
			for i := range more {
				commit(cluster("stays", string(rune('3'+i))))
			}
			a.load()
			c = a.visit(c)
			for {
				r := c.Next(xds.Cluster)
				c.ACK(r)
				gone := r.Resource("gone")
				if gone == nil {
					break
				}
				var is clusterv3.Cluster
				if err := proto.Unmarshal(gone.Body, &is); err != nil || is.AltStatName != "2" {
					t.Fatalf("the client has form 2, and gets %s (%v)", is.AltStatName, err)
				}
			}
		})
	}
}

// Without missed removals, and for frozen groups, the newest revision is served at once.
func TestNothingMissed(t *testing.T) {
	dir := t.TempDir()
	writer := revisions.Open(engine(t, dir), revisions.Options{})
	base := &revisions.Snapshot{}
	is := map[string]string{}
	src := New(engine(t, dir), store.New(), Options{Log: slog.New(slog.DiscardHandler)})
	do := func(step string, load bool, want int, change map[string]string) {
		t.Helper()
		var items []*revisions.Item
		for name, body := range change {
			if is[name] = body; body == "" {
				delete(is, name)
			}
		}
		for name, body := range is {
			items = append(items, &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, name, []byte(body))})
		}
		var err error
		if base, err = writer.Head(t.Context()); err == nil {
			base, err = writer.Commit(t.Context(), base, base.To(items), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !load {
			return
		}
		next, err := src.repo.Serving(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := src.missed(t.Context(), next); len(got) != want {
			t.Errorf("%s: %d revisions are served on the way, want %d", step, len(got), want)
		}
		if _, err := src.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	do("the first", true, 0, map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"})
	do("the next", true, 0, map[string]string{"a": ""})
	do("", false, 0, map[string]string{"b": "2"})
	do("nothing is removed", true, 0, map[string]string{"b": "3"})
	do("", false, 0, map[string]string{"c": "2"})
	do("removed in the served form", true, 0, map[string]string{"b": ""})
	do("", false, 0, map[string]string{"c": "3", "d": "2"})
	do("", false, 0, map[string]string{"d": ""})
	do("", false, 0, map[string]string{"c": "4"})
	do("two that had changed", true, 2, map[string]string{"c": "", "e": "1"})
	do("", false, 0, map[string]string{"c": "5"})
	do("", false, 0, map[string]string{"c": "6", "g": "1"})
	do("one that was there and is not, twice", true, 1, map[string]string{"c": "", "g": ""})
	do("", false, 0, map[string]string{"e": "2"})
	if err := writer.SetHolds(t.Context(), func(n revisions.Number, holds map[string]revisions.Hold) error {
		holds["default"] = revisions.Hold{Number: n}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	do("of a frozen group", true, 0, map[string]string{"e": "", "f": "1"})
}
