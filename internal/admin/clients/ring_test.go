package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/xds"
)

func TestEvents(t *testing.T) {
	within(t, "what happened, in order", func(w *testServer) {
		w.put(xds.Cluster, "one", "two")
		c := w.client(xds.SotW, envoy("a"))
		c.Subscribe(xds.Cluster, "*")
		r := c.Next(xds.Cluster)
		time.Sleep(1500 * time.Microsecond)
		c.NACK(r, "two is bad")
		synctest.Wait()
		w.Note(api.Event{Kind: "commit", Text: "revision 2", ID: 77, Missed: 3})
		w.put(xds.Cluster, "two=mended")
		c.ACK(c.Next(xds.Cluster))
		synctest.Wait()
		c.Close()
		synctest.Wait()
		var got []string
		for i, e := range w.Events(0) {
			if e.ID != uint64(i+1) || e.At.IsZero() || e.Missed != 0 || e.Kind != "commit" && (e.Node != "a" || e.Peer != "bufconn" || e.Stream != 1) {
				t.Errorf("%+v", e)
			}
			line := e.Kind
			for _, s := range []string{e.Type, e.Nonce, e.Took, e.Text} {
				if s != "" {
					line += " " + s
				}
			}
			for _, r := range e.Resources {
				line += " " + r.Name + "@" + r.Place
			}
			got = append(got, fmt.Sprintf("%s %d", line, e.Count))
		}
		want := []string{
			"connect ADS sotw envoy 1.40.0 0", "subscribe CDS * 0", "send CDS 1 2", "nack CDS 1 1.5ms two is bad two@ 2",
			"commit revision 2 0", "send CDS 2 2", "ack CDS 2 2", "recover CDS 0", "leave Canceled: the client canceled its stream, or its connection ended 0",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nnot %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if after := w.Events(8); len(after) != 1 || after[0].Kind != "leave" {
			t.Errorf("%+v", after)
		}
		if after := w.Events(1000); len(after) != 9 { // this ID is from another server
			t.Errorf("%+v", after)
		}
	})
}

func note(t *Tracker, n int) {
	for range n {
		t.Note(api.Event{Kind: "commit"})
	}
}

func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(Options{Events: 10})
		note(tr, 25)
		if got := tr.Events(3); len(got) != 10 || got[0].ID != 16 || got[0].Missed != 12 {
			t.Errorf("%d from %+v", len(got), got[0])
		}
		ctx, cancel := context.WithCancel(t.Context())
		var read []string
		done := make(chan struct{})
		slow := make(chan struct{})
		go func() {
			defer close(done)
			for e := range tr.Subscribe(ctx, 20, func(e api.Event) bool { return e.ID%2 == 0 }) {
				read = append(read, fmt.Sprint(e.ID, "-", e.Missed))
				if e.ID == 26 {
					<-slow
				}
			}
		}()
		synctest.Wait()
		note(tr, 1)
		synctest.Wait()
		note(tr, 15) // events 27 to 41, 10 of which are remembered
		close(slow)
		synctest.Wait()
		note(tr, 1)
		synctest.Wait()
		cancel()
		<-done
		if got := strings.Join(read, " "); got != "22-0 24-0 26-0 32-5 34-0 36-0 38-0 40-0 42-0" {
			t.Error(got)
		}
		if _, err := tr.Await(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(tr.ring.waiting) != 0 {
			t.Errorf("%d disconnected readers are remembered", len(tr.ring.waiting))
		}
	})
}

func TestChanged(t *testing.T) {
	within(t, "an answer rings", func(w *testServer) {
		w.put(xds.Cluster, "one")
		c := w.client(xds.Delta, envoy("a"))
		c.Subscribe(xds.Cluster, "*")
		r := c.Next(xds.Cluster)
		synctest.Wait()
		changed := w.Changed()
		select {
		case <-changed:
			t.Fatal("the channel is closed without a change")
		default:
		}
		if w.Changed() != changed {
			t.Error("two calls of Changed return different channels")
		}
		c.ACK(r)
		<-changed
		w.want("a SYNCED CDS:SYNCED")
		changed = w.Changed()
		c.Close()
		<-changed
		changed = w.Changed()
		w.Note(api.Event{Kind: "commit"})
		<-changed
	})
}

func TestNoteIsBounded(t *testing.T) {
	tr := New(Options{})
	long := strings.Repeat("x", 1<<20)
	var many []api.Resource
	for range 1000 {
		many = append(many, api.Resource{Name: long})
	}
	tr.Note(api.Event{Kind: "deny", Node: long, Text: long, Resources: many})
	e := tr.Events(0)[0]
	if len(e.Node) > maxName+8 || len(e.Text) > maxText+8 || len(e.Resources) != 10 || len(e.Resources[0].Name) > maxName+8 {
		t.Errorf("%d %d %d", len(e.Node), len(e.Text), len(e.Resources))
	}
}

// Repeated waits of one stream, type and cause are one event, unless another event is between them.
func TestWaitsCountTogether(t *testing.T) {
	r := ring{size: 4}
	one := func(kind string, stream uint64, typ, by *xds.Type) {
		r.add(&record{kind: kind, stream: stream, typ: typ, by: by, count: 1})
	}
	want := func(want string) {
		t.Helper()
		events, _, _ := r.after(0, false)
		got := ""
		for _, e := range events {
			got += fmt.Sprint(e.id, e.kind, e.stream, "x", e.count, " ")
		}
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	one("wait", 1, xds.Route, xds.Cluster)
	one("wait", 1, xds.Route, xds.Cluster)
	one("wait", 2, xds.Route, xds.Cluster)
	one("wait", 2, xds.Listener, xds.Cluster)
	one("wait", 2, xds.Listener, xds.Route)
	want("1wait1x2 2wait2x1 3wait2x1 4wait2x1 ")
	one("wait", 2, xds.Listener, xds.Route)
	one("ack", 2, xds.Listener, nil)
	one("ack", 2, xds.Listener, nil)
	one("wait", 2, xds.Listener, xds.Route)
	want("4wait2x2 5ack2x1 6ack2x1 7wait2x1 ")
	one("wait", 2, xds.Listener, xds.Route)
	want("4wait2x2 5ack2x1 6ack2x1 7wait2x2 ")
}

// The newest events of clients, and all others. No event is counted twice.
func TestNewest(t *testing.T) {
	tr := New(Options{})
	add := func(kind, node string) { tr.Note(api.Event{Kind: kind, Node: node}) }
	add("commit", "")
	for i := range 10 {
		add("ack", fmt.Sprint("a", i))
	}
	add("nack", "b")
	all := func(string, string, string) bool { return true }
	acks := func(kind, _, _ string) bool { return kind != "nack" }
	for _, c := range []struct {
		after        uint64
		most         int
		keep         func(kind, node, typ string) bool
		want         string
		missed, last int
	}{
		{0, 2, all, "commit ack nack", 9, 12},
		{0, 2, acks, "commit ack ack", 8, 12},
		{0, 100, acks, "commit ack ack ack ack ack ack ack ack ack ack", 0, 12},
		{9, 2, all, "ack nack", 1, 12},
		{11, 2, acks, "", 0, 12},
		{12, 2, all, "", 0, 12},
		{99, 1, all, "commit nack", 10, 12}, // the ID of another server
	} {
		events, missed, last := tr.Newest(c.after, c.most, c.keep)
		var got []string
		for _, e := range events {
			got = append(got, e.Kind)
		}
		if got := strings.Join(got, " "); got != c.want || missed != c.missed || int(last) != c.last {
			t.Errorf("after %d: %s, missed %d, last %d; want %s, %d, %d", c.after, got, missed, last, c.want, c.missed, c.last)
		}
	}
	for range 2 * 4096 {
		add("ack", "a")
	}
	if events, missed, _ := tr.Newest(12, 10, all); len(events) != 10 || missed != 2*4096-10 {
		t.Errorf("%d events, %d missed", len(events), missed)
	}
}
