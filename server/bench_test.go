package server

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/testkit/scaling"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A change is sent to each client, and all clients acknowledge it.
func BenchmarkUpdate(b *testing.B) {
	for _, clients := range []int{1, 100} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			st := store.New()
			w := serveFrom(b, New(st))
			conn := w.dial(b)
			set := func(body string) {
				if _, err := st.Update(func(tx *store.Tx) error { tx.Set(of(xds.Cluster, res("a", body))...); return nil }); err != nil {
					b.Fatal(err)
				}
			}
			set("0")
			var all []*deltaClient
			for range clients {
				c := w.delta(b, conn)
				c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
				all = append(all, c)
			}
			round := func() {
				for _, c := range all {
					r := c.want()
					c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
				}
			}
			round()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				set(fmt.Sprint(i))
				round()
			}
		})
	}
}

// repeating returns a function that handles an ACK of a SotW stream with n names: it decodes the ACK and passes it to
// the session. With anew, the decoder has not seen the names before.
func repeating(t testing.TB, n int) (ack, anew func()) {
	var names []string
	var set []*xds.Resource
	for i := range n {
		names = append(names, fmt.Sprintf("outbound|8080||service-%06d.default.svc.cluster.local", i))
		set = append(set, xds.NewResource(nil, names[i], []byte{1}))
	}
	session := protocol.NewSession(xds.SotW, nil, xds.Tables{xds.Endpoint.URL: with(new(xds.Table), set)}, protocol.Options{MaxResponse: 1 << 30})
	take := func(nonce string) {
		b, err := proto.Marshal(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names, ResponseNonce: nonce, VersionInfo: nonce})
		if err != nil {
			t.Fatal(err)
		}
		by := func(d *wire.Decoder) {
			req, err := d.Decode(b)
			if err == nil {
				err = session.Receive(req)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range session.Events() {
			}
		}
		d := new(wire.Decoder)
		ack, anew = func() { by(d) }, func() { by(new(wire.Decoder)) }
		ack()
	}
	take("")
	for r := range session.Responses() {
		if r.Nonce != "1" || len(r.Upserts) != n {
			t.Fatalf("%d resources", len(r.Upserts))
		}
	}
	take("1")
	return ack, anew
}

// An ACK that repeats its names does not copy them.
func TestRepeatedNames(t *testing.T) {
	ack, _ := repeating(t, 20_000)
	if n := testing.AllocsPerRun(10, ack); n > 2 {
		t.Errorf("%v allocations", n)
	}
	if raceEnabled {
		return
	}
	least := uint64(math.MaxUint64)
	for range 10 { // ten tries, because the process may do other work meanwhile
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ack()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > 1<<10 {
		t.Errorf("%d bytes", least)
	}
}

// SAFE-9: an ACK that repeats its names is not decoded again. Decoding takes four times as long, or twice under the race
// detector.
func TestRepeatedNamesAreCheap(t *testing.T) {
	most := 0.5
	if raceEnabled {
		most = 0.8
	}
	ack, anew := repeating(t, 20_000)
	scaling.AtMost(t, most, func() time.Duration { return scaling.CPUTime(anew) }, func() time.Duration { return scaling.CPUTime(ack) })
}

// A SotW ACK that repeats its names, like nearly every ACK.
func BenchmarkRepeatedNames(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ack, _ := repeating(b, n)
			b.ReportAllocs()
			for b.Loop() {
				ack()
			}
		})
	}
}

// BenchmarkAccount measures the history of a response in which one of n names changed, and of its ACK.
func BenchmarkAccount(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var set []*xds.Resource
			for i := range n {
				set = append(set, res(fmt.Sprintf("service-%06d", i), "0"))
			}
			a := &streamHistory{history: newSentHistory(1000), node: "n"}
			world := &protocol.World{}
			a.subscribed(protocol.Event{Kind: protocol.Subscribed, Type: xds.Endpoint, Count: n})
			a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Endpoint, World: world}, &xds.Changes{Upserts: set})
			var sent []protocol.Event
			var changes []*xds.Changes
			for i := range 2 {
				v := fmt.Sprint(i)
				sent = append(sent, protocol.Event{Kind: protocol.Sent, Type: xds.Endpoint, Version: v, Nonce: v, World: world})
				changes = append(changes, &xds.Changes{Upserts: []*xds.Resource{res("service-000042", v)}})
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				a.sent(sent[i&1], changes[i&1])
				a.acked(sent[i&1])
				i++
			}
		})
	}
}
