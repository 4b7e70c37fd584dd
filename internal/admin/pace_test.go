package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A counter answers with the number of its calls. Each call takes some time.
type counter struct {
	Server
	takes time.Duration
	calls int
}

// ask returns what a caller with a pace of 1 s gets, and when.
func (c *counter) ask(ctx context.Context, query string) (code int, body string, took time.Duration) {
	began := time.Now()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/api/v1/status?pace=1s"+query, nil)
	r.Pattern = "GET /api/v1/status"
	err := c.paced(func(w http.ResponseWriter, r *http.Request) error {
		c.calls++
		n := c.calls
		select {
		case <-time.After(c.takes):
			answer(w, http.StatusOK, n)
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	})(w, r)
	if err != nil {
		return 0, err.Error(), time.Since(began)
	}
	return w.Code, strings.TrimSpace(w.Body.String()), time.Since(began)
}

func TestPace(t *testing.T) {
	expect := func(t *testing.T, c *counter, query, body string, took time.Duration) {
		t.Helper()
		if code, got, after := c.ask(t.Context(), query); code != 200 || got != body || after != took {
			t.Errorf("%d %s after %v; want %s after %v", code, got, after, body, took)
		}
	}
	// together calls f n times at once.
	together := func(n int, f func()) {
		var all sync.WaitGroup
		for range n {
			all.Go(f)
		}
		all.Wait()
	}
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 10 * time.Millisecond}
		expect(t, c, "", "1", c.takes) // nobody has asked for a while
		together(20, func() { expect(t, c, "", "2", time.Second) })
		together(1, func() { expect(t, c, "&group=other", "3", c.takes) })
	})
	t.Run("an answer is never older than its question", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counter{takes: 10 * time.Millisecond}
			var others sync.WaitGroup
			others.Go(func() { expect(t, c, "", "1", c.takes) })
			time.Sleep(c.takes / 2)
			expect(t, c, "", "2", time.Second+c.takes/2)
			others.Wait()
		})
	})
	t.Run("expensive answers are rare", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counter{takes: 30 * time.Millisecond}
			expect(t, c, "", "1", c.takes)
			expect(t, c, "", "2", costShare*c.takes)
			c.takes = time.Minute
			expect(t, c, "", "3", (costShare-1)*30*time.Millisecond+c.takes)
			c.takes = 0
			expect(t, c, "", "4", 0)
			time.Sleep(2 * maxPace)
			expect(t, c, "", "5", 0)
		})
	})
	t.Run("the others get an answer, too, if the first caller leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counter{takes: 10 * time.Millisecond}
			expect(t, c, "", "1", c.takes)
			ctx, leave := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if code, text, _ := c.ask(ctx, ""); code != 0 {
					t.Error("the caller left, and has an answer: ", text)
				}
			})
			synctest.Wait()
			all.Go(func() { expect(t, c, "", "2", time.Second) })
			synctest.Wait()
			leave()
			all.Wait()
		})
	})
	t.Run("different questions are few", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counter{}
			for i := range 10 * maxDemands {
				expect(t, c, fmt.Sprintf("&group=%d", i), fmt.Sprint(i+1), 0)
			}
			if n := len(c.pacer.demands); n > maxDemands {
				t.Error(n)
			}
		})
	})
	t.Run("invalid", func(t *testing.T) {
		h := newServer(newFleet()).Handler(loopback)
		for _, query := range []string{"status?pace=0s", "status?pace=99ms", "status?pace=11s", "status?pace=x", "clients?pace=1s&limit=201", "events?pace=1ms"} {
			if w := ask(h, "GET /api/v1/"+query, ""); w.Code != 400 {
				t.Error(query, w.Code, w.Body)
			}
		}
		if w := ask(h, "GET /api/v1/clients?pace=1s&limit=200", ""); w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
			t.Error(w.Code, w.Header(), w.Body)
		}
	})
}

// A reader with a pace gets the newest events, and learns how many it missed.
func TestEventsWithPace(t *testing.T) {
	f := newFleet()
	srv := httptest.NewServer(newServer(f).Handler(loopback))
	defer srv.Close()
	next, end := reads(t, srv.URL+"/api/v1/events?pace=200ms&kind=ack&kind=commit")
	defer end()
	next()
	began := time.Now()
	f.happens(api.Event{Kind: "commit"}) // is not lost
	for range 1000 {
		f.happens(api.Event{Kind: "ack", Node: "a"})
		f.happens(api.Event{Kind: "connect", Node: "a"})
	}
	seen, missed, commits := 0, 0, 0
	for seen+missed < 1000 {
		var e api.Event
		got := next()
		if got == ":\n" {
			continue
		}
		if err := json.Unmarshal([]byte(strings.SplitN(got, "data: ", 2)[1]), &e); err != nil {
			t.Fatal(err)
		}
		missed += e.Missed
		if e.Kind == "commit" {
			commits++
			continue
		}
		seen++
	}
	if commits != 1 {
		t.Errorf("%d commits", commits)
	}
	if most := fewEvents * (2 + int(time.Since(began)/(200*time.Millisecond))); seen > most || seen < fewEvents {
		t.Errorf("%d events in %v, %d missed", seen, time.Since(began), missed)
	}
}
