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

// Who asks again and again keeps one connection, and who has asked keeps none: a server takes 256 of an address, and would
// cut those off that others have.
func TestAskingLeavesNoConnections(t *testing.T) {
	t.Parallel()
	const answer = `{"apiVersion":"v1","kind":"Status","config":{"store":{"url":"file:s","revision":"r2","holds":[{"group":"default","revision":"r1","next":"r2","rollout":"r2-1"}]}}}`
	states := make(chan http.ConnState, 1000)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
	s.Config.ConnState = func(_ net.Conn, is http.ConnState) { states <- is }
	s.Start()
	defer s.Close()
	opened := func() (n int) { // until each of them is closed
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
	if n := opened(); n != 2 { // of the question for the newest revision, and of all others
		t.Error(n, "connections were opened, not 2")
	}
}

// Wait says why a revision is not served of a group after a rollout that was rolled back, and what helps if there was none.
func TestWaitSaysWhyFrozen(t *testing.T) {
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
