package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli/inspect"
)

// A list is requested again after an event, and continues after the server was unreachable.
func TestFollow(t *testing.T) {
	for _, of := range []struct {
		args                []string
		first, second, back string
	}{
		{[]string{"get", "groups", "-o", "name"}, "g1", "g2", "g3"},
		{[]string{"get", "groups"}, "g1 ", "g2 ", "g3 "},
		{[]string{"status"}, "revision 1", "revision 2", "revision 3"},
	} {
		t.Run(strings.Join(of.args, " "), func(t *testing.T) {
			t.Parallel()
			var lists atomic.Int64
			var revision atomic.Uint64
			revision.Store(1)
			news, lost := make(chan struct{}), make(chan struct{})
			mux := http.NewServeMux()
			say := func(path string, body func() any) {
				mux.HandleFunc("GET /api/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
					lists.Add(1)
					_ = json.NewEncoder(w).Encode(body())
				})
			}
			say("groups", func() any {
				return api.GroupList{Kind: "GroupList", Items: []api.Group{{Name: fmt.Sprintf("g%d", revision.Load())}}}
			})
			say("status", func() any {
				return api.Status{Kind: "Status", Config: api.Config{Revision: revision.Load()}}
			})
			say("clients", func() any { return api.ClientList{Kind: "ClientList"} })
			mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				for {
					select {
					case <-news:
						fmt.Fprint(w, "id: 1\ndata: {\"id\":1,\"kind\":\"commit\"}\n\n")
						_ = http.NewResponseController(w).Flush()
					case <-lost:
						return // the stream ends
					case <-r.Context().Done():
						return
					}
				}
			})
			s := httptest.NewServer(mux)
			defer s.Close()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			root := inspect.Status()
			if of.args[0] == "get" {
				root = inspect.Get()
			}
			out, in := io.Pipe()
			told, tell := io.Pipe()
			root.SetArgs(append(of.args[1:], "-w", "--admin", s.URL))
			root.SetOut(in)
			root.SetErr(tell)
			ended := make(chan error, 1)
			go func() {
				err := root.ExecuteContext(ctx)
				in.Close()
				tell.Close()
				ended <- err
			}()
			read := func(r io.Reader) <-chan string {
				lines := make(chan string, 1000)
				go func() {
					defer close(lines)
					for s := bufio.NewScanner(r); s.Scan(); {
						lines <- s.Text()
					}
				}()
				return lines
			}
			lines, notes := read(out), read(told)
			await := func(from <-chan string, part string) {
				t.Helper()
				for line := range from {
					if strings.Contains(line+" ", part) {
						return
					}
				}
				t.Fatalf("the command has ended without %q", part)
			}
			await(lines, of.first)
			revision.Store(2)
			for range 3 {
				news <- struct{}{}
			}
			await(lines, of.second)
			lost <- struct{}{}
			await(notes, "the server has ended the stream of events: trying again")
			revision.Store(3)
			await(lines, of.back)
			stop()
			await(notes, "the server answers again")
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := lists.Load(); n > 12 { // three events are one more list
				t.Errorf("%d lists", n)
			}
		})
	}
}
