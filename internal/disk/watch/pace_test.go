package watch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		again time.Duration // when the first reload asks for another
		do    func(hint, force func(), wait func(time.Duration))
		want  string // when it reloaded, in milliseconds; "!" where forced
	}{
		{"nothing happens: polls", time.Hour, func(_, _ func(), wait func(time.Duration)) { wait(65 * time.Second) }, "30000? 60000?"},
		{"one hint", time.Hour, func(hint, _ func(), wait func(time.Duration)) { hint(); wait(time.Second) }, "100"},
		{"hints close together", time.Hour, func(hint, _ func(), wait func(time.Duration)) {
			for range 10 {
				hint()
				wait(50 * time.Millisecond)
			}
			wait(time.Second)
		}, "550"},
		{"hints without end", time.Hour, func(hint, _ func(), wait func(time.Duration)) {
			for range 100 {
				hint()
				wait(50 * time.Millisecond)
			}
			wait(time.Second)
		}, "2000 4000 5050"},
		{"a hint puts off the poll", time.Hour, func(hint, _ func(), wait func(time.Duration)) {
			wait(29 * time.Second)
			hint()
			wait(31 * time.Second)
		}, "29100 59100?"},
		{"delayed removals are checked in time", 5 * time.Second, func(_, _ func(), wait func(time.Duration)) { wait(36 * time.Second) }, "5000? 35000?"},
		{"an order, with and without hints", time.Hour, func(hint, force func(), wait func(time.Duration)) {
			force()
			wait(time.Second)
			hint()
			wait(50 * time.Millisecond)
			force()
			wait(time.Second)
		}, "0! 1050!"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				hints, force := make(chan struct{}, 1), make(chan bool, 1)
				start := time.Now()
				var got []string
				go func() {
					p := Pace{Quiet: 100 * time.Millisecond, Most: 2 * time.Second, Poll: 30 * time.Second}
					again := start.Add(tt.again)
					for {
						_, why := Wait(ctx, p, hints, force, again)
						if why == Ended {
							return
						}
						again = time.Time{}
						got = append(got, fmt.Sprint(time.Since(start).Milliseconds(), map[Cause]string{Ordered: "!", Polled: "?", Early: "+", Settled: ""}[why]))
					}
				}()
				hint := func() { hints <- struct{}{}; synctest.Wait() }
				tt.do(hint, func() { force <- true; synctest.Wait() }, func(d time.Duration) { time.Sleep(d); synctest.Wait() })
				if s := strings.Join(got, " "); s != tt.want {
					t.Errorf("reloaded at %s, want %s", s, tt.want)
				}
			})
		})
	}
}
