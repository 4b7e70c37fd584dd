package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/adminapi"
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
	a := &asking{target: adminapi.Target{URL: s.URL}}
	if _, err := ask(new(cobra.Command), a, statusAt); err != nil || opened() != 1 {
		t.Fatal(err)
	}
	chancery(t, 124, "rollout r2-1 of group default to r2 is under way", "wait", "--for=synced", "--revision", "r2", "--timeout", "700ms", "--admin", s.URL)
	if n := opened(); n != 1 {
		t.Error(n, "connections were opened, not 1")
	}
}
