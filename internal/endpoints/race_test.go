package endpoints

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/store"
)

// An endpoint that is put again just when its lease ends is served.
func TestPutWhenTheLeaseEnds(t *testing.T) {
	ctx := t.Context()
	l, err := Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	k := Key{Cluster{"default", "x"}, "a"}
	old, _ := l.Grant(ctx, 0)
	if err := l.Write(ctx, []Change{{k, []byte("1"), old}}); err != nil {
		t.Fatal(err)
	}
	next, _ := l.Grant(ctx, time.Hour)
	l.queue = []*write{{changes: []Change{{k, []byte("2"), next}}}} // the write waits for the disk
	l.end()
	if got := l.values[k]; string(got.Value) != "2" || got.Lease != next || !l.leases.by[next].keys[k] {
		t.Errorf("%s, lease %d", got.Value, got.Lease)
	}
}

// slowEngine is an engine that takes a while to read all registrations.
type slowEngine struct {
	*Local
	after time.Duration
	all   []Change
}

func (l slowEngine) Watch(ctx context.Context, report func([]Change, bool)) {
	time.Sleep(l.after)
	report(l.all, true)
	<-ctx.Done()
}

// However long the first read takes, its result is served, and the log reports invalid registrations.
func TestSlowLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		local, err := Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := New(slowEngine{local, 25 * time.Second, []Change{
			put(t, Key{Cluster{Name: "x"}, "a"}, `{"address":"10.0.0.1","port":1}`),
			put(t, Key{Cluster{Name: "x"}, "b"}, `{}`),
		}}, store.New(store.WithOverlays()), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		select {
		case <-r.Loaded():
		case <-time.After(time.Minute):
			t.Error("the registry is never loaded")
		}
		cancel()
		running.Wait()
		if n, _, _ := r.Counts(Cluster{"default", "x"}); n != 1 {
			t.Errorf("%d endpoints", n)
		}
		if text := log.String(); !strings.Contains(text, "count=1 first=x/b") || strings.Contains(text, "have changed") {
			t.Error(text)
		}
	})
}
