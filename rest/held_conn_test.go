package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A rawClient writes any bytes to its connection.
type rawClient struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (w *world) raw() *rawClient {
	w.t.Helper()
	c, err := w.lis.dial()
	if err != nil {
		w.t.Fatal(err)
	}
	return &rawClient{c, w.t, bufio.NewReader(c)}
}

// request returns a poll as bytes; more are headers.
func request(version string, more ...string) string {
	body := fmt.Sprintf(`{"node":{"id":"n"},"version_info":%q}`, version)
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: xds\r\nContent-Length: %d\r\n%s\r\n%s", xds.Cluster.REST, len(body), strings.Join(more, ""), body)
}

func (c *rawClient) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) receive() *http.Response {
	c.t.Helper()
	r, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// ends expects the server to close the connection.
func (c *rawClient) ends() {
	c.t.Helper()
	if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Errorf("want the end, got %v", err)
	}
}

// open returns the number of held polls once all goroutines are idle.
func (w *world) open() int {
	synctest.Wait()
	return w.Stats().Polls
}

func TestHeldConnection(t *testing.T) {
	within(t, "REST-4 a client that goes away frees everything", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		version := c.poll("").gets(t, 0).VersionInfo
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() {
			if n := w.open(); n != 1 {
				t.Errorf("%d polls are held", n)
			}
			cancel()
		})
		if _, err := c.do(ctx, http.MethodPost, xds.Cluster.REST, nil, fmt.Sprintf(`{"version_info":%q}`, version)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := w.open(); n != 0 {
			t.Errorf("%d polls are held", n)
		}
	})
	within(t, "REST-4 polls that are held are limited", func(t *testing.T) {
		w := newWorld(t)
		version := w.client().poll("").gets(t, 0).VersionInfo
		done := make(chan struct{})
		for range 3 {
			go func() { w.client().poll(version).unchanged(t, 30*time.Second); done <- struct{}{} }()
		}
		if n := w.open(); n != 3 {
			t.Errorf("%d polls are held", n)
		}
		refused(t, w.client().poll(version), 503, 14, "3 polls are held")
		w.client().poll("").gets(t, 0) // which needs not be held
		for range 3 {
			<-done
		}
	})
	within(t, "REST-4 a server that ends answers at once", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		version := c.poll("").gets(t, 0).VersionInfo
		ended := make(chan error, 1)
		time.AfterFunc(time.Second, func() { ended <- w.Drain(t.Context()) })
		r := c.poll(version)
		r.unchanged(t, time.Second)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !r.Close {
			t.Error("the connection stays open")
		}
		refused(t, c.poll(version), 503, 14, "the server is shutting down")
		start := time.Now()
		if err := w.web.Shutdown(t.Context()); err != nil || time.Since(start) > 10*time.Second {
			t.Error(err, time.Since(start))
		}
	})
	within(t, "REST-4 a server that ends closes the connection", func(t *testing.T) {
		w := newWorld(t)
		c := w.raw()
		c.send(request(w.view()))
		ended := make(chan error, 1)
		time.AfterFunc(time.Second, func() { ended <- w.Drain(t.Context()) })
		if r := c.receive(); !r.Close {
			t.Error(r)
		}
		start := time.Now()
		if c.ends(); time.Since(start) > 0 {
			t.Error("it is held for", time.Since(start))
		}
		if err := <-ended; err != nil { // before the test's context is done
			t.Error(err)
		}
	})
	within(t, "REST-4 a connection comes back, and may be idle, closed or taken again", func(t *testing.T) {
		w := newWorld(t)
		c := w.raw()
		for range 3 {
			c.send(request(w.view()))
			if r := c.receive(); r.StatusCode != http.StatusNotModified || r.Close || r.Header.Get("Date") == "" {
				t.Error(r)
			}
			time.Sleep(time.Minute)
		}
		c.send(request(""))
		if r := c.receive(); r.StatusCode != http.StatusOK {
			t.Error(r)
		}
		c.Close()
	})
	within(t, "the client wants no more", func(t *testing.T) {
		w := newWorld(t)
		c := w.raw()
		c.send(request(w.view(), "Connection: close\r\n"))
		if r := c.receive(); r.StatusCode != http.StatusNotModified || !r.Close {
			t.Error(r)
		}
		c.ends()
	})
	within(t, "the client sends the next request early", func(t *testing.T) {
		w := newWorld(t)
		c := w.raw()
		go io.WriteString(c, request(w.view())+request(w.view()))
		if r := c.receive(); r.StatusCode != http.StatusNotModified || !r.Close {
			t.Error(r)
		}
		c.Close()

		c = w.raw()
		c.send(request(w.view()))
		synctest.Wait()
		go io.WriteString(c, "POST")
		if r := c.receive(); r.StatusCode != http.StatusNotModified || !r.Close {
			t.Error(r)
		}
		c.Close()
	})
	within(t, "HTTP/1.0", func(t *testing.T) {
		w := newWorld(t)
		c := w.raw()
		c.send(strings.Replace(request(w.view()), "HTTP/1.1", "HTTP/1.0", 1))
		if r := c.receive(); r.StatusCode != http.StatusNotModified || r.Proto != "HTTP/1.0" {
			t.Error(r)
		}
		c.ends()
	})
	within(t, "the server is closed meanwhile", func(t *testing.T) {
		w := newWorld(t)
		c := w.raw()
		c.send(request(w.view()))
		time.Sleep(time.Second)
		w.web.Close()
		if r := c.receive(); r.StatusCode != http.StatusNotModified {
			t.Error(r)
		}
		c.ends()
	})
	within(t, "REST-3 REST-4 a client that does not read", func(t *testing.T) {
		w := newWorld(t)
		w.set("a")
		c := w.raw()
		c.send(request(w.view()))
		synctest.Wait()
		w.set("b") // net.Pipe has no buffer
		time.Sleep(19 * time.Second)
		if n := w.open(); n != 1 {
			t.Errorf("%d polls are open", n)
		}
		time.Sleep(2 * time.Second)
		if n := w.open(); n != 0 {
			t.Errorf("%d polls are open", n)
		}
	})
}

// view returns the version of all clusters.
func (w *world) view() string {
	watch := watchtest.Open(w.t, w.store, nil)
	defer watch.Close()
	v, _ := watchtest.Next(w.t, watch)
	return v.Table(xds.Cluster).Versions().Sum().String()
}

// A poll whose connection cannot be hijacked is held in the handler's goroutine.
func TestPollHeldWithoutHijack(t *testing.T) {
	st := store.New(store.WithEmptyGroups())
	srv := server.New(st)
	h := New(srv)
	hold := http.Header{"X-Envoy-Expected-Rq-Timeout-Ms": {"300"}}
	poll := func(t *testing.T, c *http.Client, url string) (_ *http.Response, reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+xds.Cluster.REST, strings.NewReader(`{"version_info":"0000000000000000"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = hold
		start := time.Now()
		r, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if took := time.Since(start); r.StatusCode != http.StatusNotModified || took < 200*time.Millisecond {
			t.Errorf("%v after %v", r, took)
		}
		return r, reused
	}
	t.Run("REST-2 a recorder", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, xds.Cluster.REST, strings.NewReader(`{"version_info":"0000000000000000"}`))
			start := time.Now()
			if New(server.New(store.New(store.WithEmptyGroups()))).ServeHTTP(rec, req); rec.Code != http.StatusNotModified || time.Since(start) != 30*time.Second {
				t.Errorf("%d after %v", rec.Code, time.Since(start))
			}
		})
	})
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("REST-2 TLS, HTTP/2 ", h2), func(t *testing.T) {
			secure := func(w http.ResponseWriter, r *http.Request) {
				if r.TLS == nil {
					t.Error("a request without TLS")
				}
				h.ServeHTTP(w, r)
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(secure))
			s.EnableHTTP2 = h2
			s.StartTLS()
			defer s.Close()
			for i := range 3 {
				r, reused := poll(t, s.Client(), s.URL)
				if (r.ProtoMajor == 2) != h2 || reused != (i > 0) {
					t.Errorf("%v, reused: %v", r, reused)
				}
			}
			s.Client().CloseIdleConnections()
		})
	}
	if err := srv.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}
