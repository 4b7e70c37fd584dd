package peers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An announcement counts only under its own key, and up to the maximum size.
func TestParse(t *testing.T) {
	for value, good := range map[string]bool{
		`{"format":1,"id":"a"}`: true, `{"format":1,"id":"b"}`: false, `{"format":2,"id":"a"}`: false,
		`{"format":1,"id":"a","host":"` + strings.Repeat("x", maxAbout) + `"}`: false,
	} {
		if a, err := parse(prefix+"a", []byte(value)); (err == nil) != good || a.ID != "a" || a.Streams != 0 {
			t.Errorf("%.60s: %+v, %v", value, a, err)
		}
	}
	if err := (About{Admin: "http://127.0.0.1:1"}).reachable(""); err == nil {
		t.Error("a loopback address is reachable, although the machine is unknown")
	}
}

// A trip is a transport that records requests.
type trip func(*http.Request)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { f(r); return nil, errors.New("no") }

// The token is sent over TLS only, and only to a server with a certificate of a configured CA: any
// program can have a certificate of a public CA.
func TestToken(t *testing.T) {
	for admin, want := range map[string]string{"https://10.0.0.1:1": "Bearer secret", "http://127.0.0.1:1": ""} {
		for _, named := range []bool{true, false} {
			got := "not asked"
			c := client{&http.Client{Transport: trip(func(r *http.Request) { got = r.Header.Get("Authorization") })}, func() (string, error) { return "secret", nil }, named}
			want := want
			if want != "" && !named {
				want = "not asked"
			}
			if _, err := c.send(t.Context(), "a", admin, request{http.MethodGet, "/x", nil, nil}, 10); err == nil || got != want {
				t.Errorf("%s, %t: %q, want %q; %v", admin, named, got, want, err)
			}
		}
	}
}

// Writer returns a server as soon as it is announced as the writer; of two, the one that began last. A
// server that cannot be asked is returned, too.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		var writes atomic.Pointer[time.Time]
		writes.Store(new(time.Time))
		x := New(Options{Engine: b, Self: func() About { return About{ID: "x", Host: "here"} }})
		y := New(Options{Engine: b, Self: func() About { return About{ID: "y", Host: "here", Admin: "http://127.0.0.1:1", Writes: *writes.Load()} }})
		running.Go(func() { x.Run(ctx) })
		running.Go(func() { y.Run(ctx) })
		synctest.Wait()
		if w := x.Writer(ctx, true); w.ID != "" {
			t.Errorf("%+v", w)
		}
		writes.Store(new(time.Now()))
		y.Changed()
		synctest.Wait()
		if w := x.Writer(ctx, false); w.ID != "" {
			t.Errorf("Writer returned an announcement without a read: %+v", w)
		}
		if w := x.Writer(ctx, true); w.ID != "y" || w.Admin != "http://127.0.0.1:1" {
			t.Errorf("%+v", w)
		}
		if w := y.Writer(ctx, true); w.ID != "" {
			t.Errorf("Writer returned the server itself: %+v", w)
		}
		b.put("replica/z", []byte(`{"format":1,"id":"z","host":"there","admin":"http://127.0.0.1:1","writes":"`+time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)+`"}`))
		if w := x.Writer(ctx, true); w.ID != "z" || w.Admin != "" {
			t.Errorf("%+v", w)
		}
	})
}
