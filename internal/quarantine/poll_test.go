package quarantine

import (
	"net"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A poll that states the old version may come from a client that never got the answer, because its
// request had timed out. The poll is held, to avoid a loop. But nothing comes into quarantine: the same
// answer is sent again.
func TestPollsAreNotQuarantined(t *testing.T) {
	within(t, func(r *fixture) {
		r.guilty = []string{"a"}
		r.set("a", "1", "b", "1")
		port := 1000
		poll := func(version string, refuses *xds.Status) *xds.Response {
			r.Helper()
			port++ // the client closed the connection of its last poll
			from := server.Caller{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port}, Sequential: true}
			p, err := r.server.Poll(r.Context(), xds.Cluster, xds.Request{Node: &xds.Node{ID: "n"}, Version: version, Error: refuses}, from)
			if err != nil {
				r.Fatal(err)
			}
			got, err := p.Wait(r.Context(), server.MaxHold)
			p.Close(err)
			if err != nil {
				r.Fatal(err)
			}
			return got
		}
		bad := func(got *xds.Response) bool {
			if got == nil || len(got.Upserts) != 2 {
				return false
			}
			return string(got.Upserts[0].Body) == string(message("a", "bad"))
		}
		old := poll("", nil).Version
		r.set("a", "bad")
		if got := poll(old, nil); !bad(got) {
			r.Errorf("told %v", got)
		}
		if got := poll(old, nil); got != nil {
			r.Errorf("told in a loop: %v", got)
		}
		r.holds(0)
		if got := poll(old, nil); !bad(got) {
			r.Errorf("told %v", got)
		}
		// the same for a refusal: a poll always covers the whole type
		if got := poll(old, &xds.Status{Message: "a is bad"}); got != nil {
			r.Errorf("told in a loop: %v", got)
		}
		r.holds(0)
		time.Sleep(time.Minute)
		r.set("b", "2")
		if got := poll(old, nil); !bad(got) {
			r.Errorf("told %v", got)
		}
	})
}
