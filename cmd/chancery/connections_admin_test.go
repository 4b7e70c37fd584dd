package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/cobra"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
)

// A command that asks repeatedly uses one connection, and closes it at its end. A server accepts 256
// connections of an address, so more would close the connections of others.
func TestCommandsCloseConnections(t *testing.T) {
	t.Parallel()
	const answer = `{"result":{"kind":"WaitResult","class":"timeout","why":"not synced: no reason"}}`
	states := make(chan http.ConnState, 1000)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
	s.Config.ConnState = func(_ net.Conn, is http.ConnState) { states <- is }
	s.Start()
	defer s.Close()
	opened := func() (n int) { // counts connections that are not closed
		for open := 0; ; {
			select {
			case is := <-states:
				switch is {
				case http.StateNew:
					n++
					open++
				case http.StateClosed:
					open--
				}
				if is == http.StateClosed && open == 0 && len(states) == 0 {
					return n
				}
			case <-time.After(20 * time.Second):
				t.Fatal(open, "connections stay")
			}
		}
	}
	a := &cli.AdminFlags{Target: adminclient.Target{URL: s.URL}}
	if _, err := cli.Ask(new(cobra.Command), a, cli.GetStatus); err != nil || opened() != 1 {
		t.Fatal(err)
	}
	chancery(t, 124, "not synced: no reason", "wait", "--for=synced", "--admin", s.URL)
	if n := opened(); n != 1 { // asks twice: the server, and for the result
		t.Error(n, "connections were opened, not 1")
	}
}

// A server of another version, which does not know the request of wait or the verdict of status, is a clear
// error. A group that does not exist is a different one.
func TestCommandsReportServerOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{"": "its version has no /api/v1/wait/synced", "group": "path not found"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				_, _ = w.Write([]byte(`{"kind":"Version","version":"v0.0.1"}`))
				return
			}
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Error","field":"` + field + `","message":"path not found"}`))
		}))
		chancery(t, map[bool]int{true: 3, false: 4}[field == ""], want, "wait", "--for=synced", "--admin", s.URL)
		s.Close()
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer s.Close()
	chancery(t, 1, "whose status does not state whether all is well", "status", "--admin", s.URL)
	chancery(t, 3, "the server has ended the wait without a result", "wait", "--for=synced", "--admin", s.URL)
}
