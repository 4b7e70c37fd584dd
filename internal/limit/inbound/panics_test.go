package inbound

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
)

// "A panic behind one stream, poll, observer or source ends that one, is logged with its stack and
// counted; the process lives" (SAFE-8): gRPC's goroutines and timers do not catch panics.
func TestPanics(t *testing.T) {
	odd := scanner{have: frameHeader, left: -1} // the next byte is beyond its frame
	bomb := func(r *rig, p *peer) {
		r.Budget.mu.Lock()
		defer r.Budget.mu.Unlock()
		r.holding[p.server].timer = new(time.Timer) // panics when it is used, with both locks held
	}
	for what, plant := range map[string]func(*rig, *peer){
		"what was read": func(_ *rig, p *peer) {
			p.server.mu.Lock()
			p.server.in.scanner = odd
			p.server.mu.Unlock()
			p.more(1, []byte("more"))
		},
		"what is written": func(r *rig, p *peer) {
			p.server.out = replies{scanner: odd}
			if n, err := p.server.Write([]byte("more")); n > 0 || err == nil {
				r.Error("the bytes were written although the connection is closed:", n, err)
			}
		},
		"the release of a complete request": func(r *rig, p *peer) {
			p.begin(300*k, 90*k)
			bomb(r, p)
			p.send(210 * k)
		},
		"the release when the server ends a stream": func(r *rig, p *peer) {
			p.begin(300*k, 90*k)
			bomb(r, p)
			talk := newTalk()
			_ = talk.WriteRSTStream(1, 0)
			_, _ = p.server.Write(talk.Bytes()[preface:])
		},
		"the release when the connection is closed": func(r *rig, p *peer) {
			p.begin(300*k, 90*k)
			bomb(r, p)
			p.server.Close()
		},
		"a tick": func(r *rig, p *peer) {
			p.begin(300*k, 90*k)
			bomb(r, p)
			time.Sleep(tick)
		},
		"the callback for a slow request": func(r *rig, p *peer) {
			r.Budget.refused = nil
			p.begin(300*k, 90*k)
			time.Sleep(21 * tick)
		},
		"the callback for missing room": func(r *rig, p *peer) {
			r.Budget.refused = nil
			r.Whole(200 * k)
			p.begin(300*k, 90*k)
			p.send(10 * k)
			time.Sleep(maxTurnWait)
			synctest.Wait() // the refusal is reported before there is room again
			r.Whole(-200 * k)
		},
		"the callback for too many bytes": func(r *rig, p *peer) {
			r.Budget.refused = nil
			p.begin(500*k, 450*k)
		},
		"the callback for ended streams": func(r *rig, p *peer) {
			r.Budget.hasty = nil
			p.streams(3, 1100, true)
		},
		"the pace of an address": func(r *rig, p *peer) {
			r.pace = nil
			p.streams(3, 1, true)
		},
	} {
		within(t, "SAFE-8 "+what, 400*k, func(r *rig) {
			var told []string
			r.panicked = func(peer net.Addr, p *panics.Panic) { told = append(told, peer.String()+": "+p.Stack) }
			bad, good, before := r.from("bad"), r.from("good"), panics.Count()
			plant(r, bad)
			synctest.Wait()
			if len(told) != 1 || !strings.HasPrefix(told[0], "bad: ") || !strings.Contains(told[0], "inbound.(*Conn)") || panics.Count() == before {
				r.Errorf("%d panics, reported: %q", panics.Count()-before, told)
			}
			if _, err := bad.Write([]byte{0}); err == nil {
				r.Error("the client is still connected")
			}
			good.begin(300*k, 90*k)
			good.send(210 * k)
			good.is("read")
			if r.Used() != 0 {
				r.Errorf("%d bytes are used", r.Used())
			}
		})
	}
	within(t, "SAFE-8 the callback for panics may panic", 400*k, func(r *rig) {
		r.panicked, r.pace = nil, nil
		bad := r.from("bad")
		bad.streams(3, 2, true)
		bad.is("closed")
	})
}
