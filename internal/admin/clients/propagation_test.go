package clients

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A client has accepted a commit when it has answered all responses that were sent after it.
func TestPropagation(t *testing.T) {
	began := time.Unix(1000, 0)
	now, newest := began, store.Commit{}
	tr := New(Options{Now: func() time.Time { return now }, Newest: func() (store.Commit, bool) { return newest, newest.Seq > 0 }})
	commit := func(seq uint64, group string) {
		newest = store.Commit{Seq: seq, Time: now, Changes: []store.Change{{Group: group, Type: xds.Cluster, Set: 1}}}
	}
	var streams []*server.Stream
	open := func() *server.Stream {
		st := &server.Stream{ID: uint64(len(streams) + 1), Node: &xds.Node{ID: fmt.Sprint("n", len(streams))}, Variant: xds.Delta, Since: now, Peer: at("10.0.0.1:1")}
		tr.Opened(st)
		streams = append(streams, st)
		return st
	}
	tell := func(st *server.Stream, kind protocol.EventKind, typ *xds.Type, nonce string) {
		tr.Event(st, protocol.Event{Kind: kind, Type: typ, Nonce: nonce, Count: 1, Error: &xds.Status{Message: "no"}, Refuses: kind == protocol.Nacked})
	}
	a, b, c := open(), open(), open()
	now = now.Add(time.Second)
	commit(1, "default")
	for _, st := range streams {
		tell(st, protocol.Sent, xds.Cluster, "1")
	}
	late := open()
	tell(late, protocol.Sent, xds.Cluster, "1")
	now = now.Add(10 * time.Millisecond)
	tell(a, protocol.Acked, xds.Cluster, "1")
	tell(a, protocol.Sent, xds.Route, "2") // the same commit: its clusters come first
	tell(b, protocol.Acked, xds.Cluster, "1")
	tell(c, protocol.Nacked, xds.Cluster, "1")
	tell(late, protocol.Acked, xds.Cluster, "1") // it connected after the commit
	now = now.Add(90 * time.Millisecond)
	tell(a, protocol.Acked, xds.Route, "2")
	got := tr.Propagation()
	if len(got) != 1 || got[0].Revision != 1 || got[0].Clients != 2 || fmt.Sprint(got[0].Curve) != "[{10.4 1} {108 2}]" || got[0].P50 != 10.4 || got[0].P99 != 108 || got[0].Last != 108 {
		t.Fatalf("%+v", got)
	}

	// Endpoints that are registered later do not belong to the commit, and are no commit of their own.
	now = now.Add(time.Minute)
	commit(2, store.OverlayOf("default"))
	tell(b, protocol.Sent, xds.Endpoint, "3")
	tell(b, protocol.Acked, xds.Endpoint, "3")
	if got := tr.Propagation(); len(got) != 1 || got[0].Last != 108 {
		t.Errorf("%+v", got)
	}

	// An answer to an earlier response belongs to the earlier commit. Only the last commits are kept.
	tell(b, protocol.Sent, xds.Cluster, "4")
	now = now.Add(time.Second)
	commit(3, "default")
	tell(a, protocol.Sent, xds.Cluster, "5")
	tell(b, protocol.Acked, xds.Cluster, "4")
	tell(a, protocol.Acked, xds.Cluster, "5")
	if got := tr.Propagation(); len(got) != 2 || got[0].Revision != 3 || got[0].Clients != 1 || got[1].Clients != 2 || got[1].Last < 60_000 {
		t.Errorf("%+v", got)
	}
	for seq := uint64(4); seq < 20; seq++ {
		now = now.Add(2 * time.Hour)
		commit(seq, "default")
		tell(a, protocol.Sent, xds.Cluster, fmt.Sprint(seq+2))
		now = now.Add(2 * time.Hour)
		tell(a, protocol.Acked, xds.Cluster, fmt.Sprint(seq+2))
	}
	if got := tr.Propagation(); len(got) != maxSpreads || got[0].Revision != 19 || got[7].Revision != 12 || got[0].Clients != 1 {
		t.Errorf("%d %+v", len(got), got)
	}
}
