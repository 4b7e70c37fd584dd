package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPartsStopInReverseOrder(t *testing.T) {
	failure := errors.New("failed")
	for name, tt := range map[string]struct {
		third   error // of the start of the third part
		serving error
		want    error
		events  []string
	}{
		"after serving": {events: []string{
			"start a", "start b", "start c", "start d", "serve", "stop d", "stop b", "stop a", "end a", "end b", "end c", "end d"}},
		"after serving failed": {serving: failure, want: failure, events: []string{
			"start a", "start b", "start c", "start d", "serve", "stop d", "stop b", "stop a", "end a", "end b", "end c", "end d"}},
		"the third part fails": {third: failure, want: failure, events: []string{
			"start a", "start b", "start c", "stop b", "stop a", "end a", "end b"}},
		"the third part is stopped by a signal": {third: errStopped, events: []string{
			"start a", "start b", "start c", "stop b", "stop a", "end a", "end b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var events []string
				note := func(event string) {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, event)
				}
				fake := func(name string, err error, ends time.Duration) part {
					var failed func() error
					return part{name: name, start: func(ctx context.Context, running *sync.WaitGroup) error {
						failed = ctx.Err
						note("start " + name)
						if err != nil {
							return err
						}
						running.Go(func() {
							<-ctx.Done()
							time.Sleep(ends) // run waits for the goroutine
							note("end " + name)
						})
						return nil
					}, stop: func() {
						note("stop " + name)
						if failed() != nil {
							t.Errorf("the context of %s was done before its stop", name)
						}
					}}
				}
				c := fake("c", tt.third, 3*time.Second)
				if tt.third == nil {
					c.stop = nil // the part ends with ctx
				}
				parts := []part{fake("a", nil, time.Second), fake("b", nil, 2*time.Second), c, fake("d", nil, 4*time.Second)}
				err := run(parts, func() error { note("serve"); return tt.serving })
				mu.Lock()
				defer mu.Unlock()
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("%v, want %v", err, tt.want)
				}
				if !slices.Equal(events, tt.events) {
					t.Errorf("%q\nwant %q", events, tt.events)
				}
			})
		})
	}
}
