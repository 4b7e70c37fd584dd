package inbound

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// streams opens n streams, starting with the given id. With reset, it ends each stream at once.
func (p *peer) streams(from uint32, n int, reset bool) (next uint32) {
	for range n {
		t := newTalk().open(from, false)
		if reset {
			_ = t.WriteRSTStream(from, http2.ErrCodeCancel)
		}
		p.say(t.Bytes()[preface:])
		from += 2
	}
	return from
}

// "What a client can make the server hold or do is bounded per stream, per peer and in all, in
// bytes and in time, from the first byte" (SAFE-9): opening a stream costs the server much work.
func TestHaste(t *testing.T) {
	within(t, "SAFE-9 a client that resets streams as fast as it can is read at a limited rate, and stays connected", 1<<20, func(r *rig) {
		p := r.from("a")
		start := time.Now()
		id := p.streams(3, 1000, true) // ten seconds' worth
		p.is("read")
		if r.hasty.Load() != 0 {
			r.Error("as many may come at once")
		}
		p.streams(id, 90, true)
		p.is("waiting")
		for p.left.Load() > 0 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if d := time.Since(start); d < 890*time.Millisecond || d > 910*time.Millisecond { // the last reset is read after the time of 89 others
			r.Errorf("1,090 streams at 100 a second, 1,000 at once, took %v", d)
		}
		p.is("read")
		r.refuses()
		if n := r.hasty.Load(); n != 1 {
			r.Errorf("told %d times", n)
		}
	})
	within(t, "SAFE-9 streams that the server ends count, too", 1<<20, func(r *rig) {
		p := r.from("a")
		go func() { // the responses of the server
			for b := make([]byte, k); ; {
				if _, err := p.Read(b); err != nil {
					return
				}
			}
		}()
		id := p.streams(3, 1100, false)
		p.is("read")
		for stream := uint32(3); stream < id; stream += 2 {
			t := newTalk()
			_ = t.WriteRSTStream(stream, http2.ErrCodeProtocol)
			_, _ = p.server.Write(t.Bytes()[preface:])
		}
		p.streams(id, 2, false) // the next read notices how many streams have ended
		p.is("waiting")
		time.Sleep(1010 * time.Millisecond)
		p.is("read")
	})
	within(t, "SAFE-7 streams that stay open cost nothing, however many come at once", 1<<20, func(r *rig) {
		p := r.from("a")
		p.streams(3, 10_000, false)
		p.is("read")
		if r.hasty.Load() != 0 {
			r.Error("the client was reported as hasty")
		}
	})
	within(t, "SAFE-9 other connections are read meanwhile", 1<<20, func(r *rig) {
		p, other := r.from("a"), r.from("a")
		p.streams(3, 1100, true)
		p.is("waiting")
		other.streams(3, 100, true)
		other.is("read")
	})
	within(t, "SAFE-9 a client that reconnects keeps the rate of its address", 1<<20, func(r *rig) {
		for range 100 {
			p := r.from("a")
			p.streams(3, 1000, true)
			p.is("read")
			p.Close()
		}
		start := time.Now()
		p := r.from("a")
		p.streams(3, 100, true)
		p.is("waiting")
		other := r.from("b")
		other.streams(3, 100, true)
		other.is("read")
		for p.is("waiting"); p.left.Load() > 0; synctest.Wait() {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(start); d < 9*time.Millisecond || d > 12*time.Millisecond {
			t := d
			r.Errorf("100 streams at 10,000 a second took %v", t)
		}
	})
	within(t, "a connection that is closed during a delay stops waiting", 1<<20, func(r *rig) {
		p := r.from("a")
		p.streams(3, 1100, true)
		p.is("waiting")
		start := time.Now()
		p.server.Close()
		synctest.Wait()
		if _, err := p.server.Read(make([]byte, 1)); err == nil || time.Since(start) > 0 {
			r.Error(err, time.Since(start))
		}
		p.server.Close()
	})
}
