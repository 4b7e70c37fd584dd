package rest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// "What a client can make the server hold or do is bounded per stream, per peer and in all,
// in bytes and in time, from the first byte (requests not finished, …)" (SAFE-9)
func TestUnfinishedBodiesAreLimited(t *testing.T) {
	within(t, "SAFE-9 a poll that begins and stops is cut, and counts until then", func(t *testing.T) {
		w := newWorld(t)
		w.set("a")
		conn, err := w.lis.dial()
		if err != nil {
			t.Fatal(err)
		}
		var answer strings.Builder
		ended := make(chan struct{})
		go func() { defer close(ended); io.Copy(&answer, conn) }()
		start := time.Now()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n%s", xds.Cluster.REST, strings.Repeat(" ", 200<<10))
		synctest.Wait()
		if n := w.Stats().Unfinished; n < 150<<10 || n > 200<<10 { // the rest is in net/http's buffer
			t.Errorf("%d bytes are unfinished", n)
		}
		w.client().poll("").gets(t, 0, "a")
		<-ended
		if d := time.Since(start); d > 22*time.Second || !strings.Contains(answer.String(), "503") || !strings.Contains(answer.String(), "Retry-After") {
			t.Errorf("after %v: %s", d, &answer)
		}
		if s := w.Stats(); s.Unfinished != 0 || s.Throttled["unfinished"] != 1 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 a large poll is answered, and counts no more", func(t *testing.T) {
		w := newWorld(t)
		w.set("a")
		c := w.client()
		for range 3 { // on one connection
			r := c.post(xds.Cluster.REST, `{}`+strings.Repeat(" ", 2<<20))
			if r.gets(t, 0, "a"); r.StatusCode != http.StatusOK {
				t.Error(r.StatusCode)
			}
		}
		if s := w.Stats(); s.Unfinished != 0 || w.lis.count() != 1 {
			t.Errorf("%+v, %d connections", s, w.lis.count())
		}
	})
}

// The buffer of a large poll is not kept.
func TestLargeBuffersAreNotReused(t *testing.T) {
	w := newWorld(t)
	h := w.web.Handler.(*Handler)
	for range 10 { // a pool may keep what it is given
		large := bytes.NewBuffer(make([]byte, 0, maxReusedBody+1))
		h.reuseBody(large)
		if h.bodies.Get() == large {
			t.Fatalf("SAFE-9 a buffer of %d bytes is kept", large.Cap())
		}
	}
}

// An ending is a handler that signals when requests have ended.
type ending struct {
	http.Handler
	ended chan time.Duration
	since time.Time
}

// ServeHTTP implements [http.Handler].
func (e ending) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.Handler.ServeHTTP(w, r)
	e.ended <- time.Since(e.since)
}

func TestPollEndsWithItsClient(t *testing.T) {
	within(t, "SAFE-9 a poll that waits for its rate ends when its client is gone", func(t *testing.T) {
		const polls = 30
		s := server.New(store.New(store.WithEmptyGroups()), server.WithLimits(server.Limits{AddressRate: 1}))
		h := ending{New(s), make(chan time.Duration, polls), time.Now()}
		lis, done := newMemory(), make(chan error)
		web := &http.Server{Handler: h}
		go func() { done <- web.Serve(lis) }()
		var all []net.Conn
		for range polls { // ten at once, and one a second
			conn, err := lis.dial()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
			go io.Copy(io.Discard, conn)
			go io.WriteString(conn, request(""))
		}
		time.Sleep(5*time.Second + time.Millisecond)
		for _, conn := range all {
			conn.Close()
		}
		var last time.Duration
		for range polls {
			last = max(last, <-h.ended)
		}
		if last > 6*time.Second {
			t.Errorf("the last one ended after %v", last)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		web.Close()
		<-done
		lis.closeAll()
	})
}
