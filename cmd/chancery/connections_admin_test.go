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
	const answer = `{"apiVersion":"v1","kind":"Status","config":{"store":{"url":"file:s","revision":"r2","holds":[{"group":"default","revision":"r1","next":"r2","rollout":"r2-1"}]}}}`
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
	chancery(t, 124, "rollout r2-1 of group default to r2 is under way", "wait", "--for=synced", "--revision", "r2", "--timeout", "700ms", "--admin", s.URL)
	if n := opened(); n != 2 { // one for the newest revision, and one for all other requests
		t.Error(n, "connections were opened, not 2")
	}
}

// Wait explains why a revision of a group is not served after a rollback, and how to serve it without one.
func TestWaitExplainsFrozenGroup(t *testing.T) {
	t.Parallel()
	for back, want := range map[string][2]string{
		"":   {"group default is frozen at r1, so r2 is not served", "chancery unfreeze default, or chancery rollout start r2, serves it"},
		"r2": {"group default is frozen at r1, because rollout r2-1 to r2 was rolled back: node e1 refuses CDS bad, so r2 is not served", "chancery rollout status shows details"},
		"r1": {"group default is frozen at r1, so r2 is not served", "chancery unfreeze default"},
	} {
		answer := `{"apiVersion":"v1","kind":"Status","config":{"store":{"url":"file:s","revision":"r2","holds":[{"group":"default","revision":"r1"}],
			"rolled_back":[{"rollout":"r2-1","groups":["default"],"revision":"` + back + `","why":"node e1 refuses CDS bad"}]}}}`
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		for _, text := range want {
			chancery(t, 1, text, "wait", "--for=synced", "--revision", "r2", "--timeout", "100ms", "--admin", s.URL)
		}
		s.Close()
	}
}
