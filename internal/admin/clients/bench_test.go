package clients

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

var raceEnabled bool // set by race_test.go

// BenchmarkSentAcked measures a response and its ACK: two events.
func BenchmarkSentAcked(b *testing.B) {
	f := &fleet{Tracker: New(Options{})}
	for range 1000 { // many rows, so that the cache does not hide lookups
		f.open(envoy(fmt.Sprint(f.last)), "10.0.0.1:1", nil, five...)
	}
	st := f.open(envoy("a"), "10.0.0.1:1", nil, five...)
	sent := protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "12345", Version: "1f55186a8980aa14", Count: 3}
	acked := protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: "12345", Version: "1f55186a8980aa14", Took: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		f.Event(st, sent)
		f.Event(st, acked)
	}
}

// The same on many streams in parallel.
func BenchmarkSentAckedParallel(b *testing.B) {
	f := New(Options{})
	sent := protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "12345", Version: "1f55186a8980aa14", Count: 3}
	acked := protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: "12345", Version: "1f55186a8980aa14", Took: time.Millisecond}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		one := &fleet{Tracker: f}
		st := one.open(envoy(fmt.Sprintf("%p", p)), "10.0.0.1:1", nil, five...)
		for p.Next() {
			f.Event(st, sent)
			f.Event(st, acked)
		}
	})
}

func many(n int) *fleet {
	f := &fleet{Tracker: New(Options{Groups: func(n *xds.Node) []string { return []string{n.Cluster} }})}
	for i := range n {
		f.open(envoy(fmt.Sprint("node-", i)), fmt.Sprintf("10.0.%d.%d:51234", i/256, i%256), nil, five...)
	}
	return f
}

func BenchmarkClients10000(b *testing.B) {
	f := many(10_000)
	for b.Loop() {
		if l := f.Clients(Filter{All: true}); len(l.Items) != 10_000 {
			b.Fatal(l.Total)
		}
	}
}

// A page of the list of many clients, as the operator's page asks for it.
func BenchmarkClientsPage(b *testing.B) {
	f := many(50_000)
	for _, offset := range []int{0, 25_000} {
		b.Run(fmt.Sprintf("offset=%d", offset), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if l := f.Clients(Filter{All: true, Offset: offset, Limit: 100}); len(l.Items) != 100 {
					b.Fatal(l.Total)
				}
			}
		})
	}
}

func BenchmarkSummary10000(b *testing.B) {
	f := many(10_000)
	for b.Loop() {
		if c, _, _ := f.Summary(); c.Connected != 10_000 {
			b.Fatal(c)
		}
	}
}

func BenchmarkNacked(b *testing.B) {
	f := &fleet{Tracker: New(Options{})}
	st := f.open(envoy("a"), "10.0.0.1:1", nil, five...)
	nack := protocol.Event{
		Kind: protocol.Nacked, Type: xds.Route, Nonce: "1", Names: []string{"a", "b"}, Refuses: true,
		Error: &xds.Status{Message: "Only a single wildcard domain is permitted in route a"},
	}
	b.ReportAllocs()
	for b.Loop() {
		f.Event(st, nack)
	}
}

func BenchmarkOpenedClosed(b *testing.B) {
	f := many(1000)
	b.ReportAllocs()
	for b.Loop() {
		f.Closed(f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster), nil)
	}
}
