package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A head is the newest state of several servers with the same configuration.
type head struct {
	asked []bool // the argument known of each call
	says  func(context.Context) error
}

func (h *head) newest(ctx context.Context, known bool) error {
	h.asked = append(h.asked, known)
	if h.says == nil {
		return nil
	}
	return h.says(ctx)
}

// wants fails the test if the calls since the last check were not exactly these.
func (h *head) wants(t *testing.T, known ...bool) {
	t.Helper()
	if len(h.asked) != len(known) || len(known) > 0 && h.asked[0] != known[0] {
		t.Fatalf("asked %v, want %v", h.asked, known)
	}
	h.asked = nil
}

// A client that polls with a version from another server gets an answer when the source is as new
// as that server, like a stream. So no client gets older content than it has.
func TestCatchUpOfPolls(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}} {
		synctest.Test(t, func(t *testing.T) {
			h := &head{}
			w := newPollWorld(t, WithCatchUp(h.newest))
			w.set(xds.Cluster, res("a", "1"))
			v := w.visitor(xds.Cluster, names...)
			v.gets(0, "a")
			h.wants(t) // a client without a version cannot have newer content
			w.set(xds.Cluster, res("a", "2"))
			v.gets(0, "a")
			h.wants(t, true) // this server sent the version
			v.waits()
			h.wants(t) // the client gets nothing

			// Another server sent a version that comes here a moment later.
			other := newPollWorld(t)
			other.set(xds.Cluster, res("a", "3"))
			ahead := other.visitor(xds.Cluster, names...)
			ahead.gets(0, "a")
			v.version = ahead.version
			h.says = func(context.Context) error {
				time.Sleep(time.Second)
				w.set(xds.Cluster, res("a", "3"))
				return nil
			}
			v.waits()
			h.wants(t, false)
			h.says = nil
			w.later(func() { w.set(xds.Cluster, res("a", "4")) })
			v.gets(10*time.Second, "a")
			h.wants(t, true)

			// The server does not know whether the client's version is newer, so the client keeps
			// it.
			v.version = "of another server"
			h.says = func(context.Context) error { return errors.New("nobody knows") }
			p, err := w.Poll(t.Context(), v.typ, v.request(), v.caller())
			if err != nil {
				t.Fatal(err)
			}
			if r, err := p.Wait(t.Context(), MaxHold); r != nil || status.Code(err) != codes.Unavailable {
				t.Error(r, err)
			}
			p.Close(errBehind)
			h.wants(t, false)

			// The server does not wait longer than the client.
			h.says = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			if p, err = w.Poll(t.Context(), v.typ, v.request(), v.caller()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if r, err := p.Wait(t.Context(), time.Second); r != nil || status.Code(err) != codes.Unavailable || time.Since(began) != time.Second {
				t.Error(r, err, time.Since(began))
			}
			p.Close(errBehind)
		})
	}
}

// A version that the client may have applied only in part is new for the client, even if the source
// now has that version.
func TestCatchUpAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &head{}
		w := newPollWorld(t, WithCatchUp(h.newest))
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		w.set(xds.Cluster, res("a", "2"))
		v.refuses = true
		v.gets(0, "a")
		h.wants(t, true)
		h.says = func(context.Context) error { w.set(xds.Cluster, res("a", "1")); return nil } // another writer reverts the change
		w.set(xds.Cluster, res("a", "3"))
		if r := v.gets(0, "a"); r.Version != v.version {
			t.Error("it is told", r.Version)
		}
	})
}

// A unary call gets an error instead of content that may be older.
func TestCatchUpOfFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &head{says: func(context.Context) error { return errors.New("nobody knows") }}
		w := newPollWorld(t, WithCatchUp(h.newest))
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.version = "of another server"
		p, err := w.Poll(t.Context(), v.typ, v.request(), v.caller())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Unchanged(); r != nil || status.Code(err) != codes.Unavailable {
			t.Error(r, err)
		}
		p.Close(errBehind)
	})
}
