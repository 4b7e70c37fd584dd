package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A process that was stopped for longer than a TTL finds clients without the
// resource. A heartbeat does not bring it back.
func TestBeatsTooLate(t *testing.T) {
	const ttl = 30 * time.Second
	for _, c := range []struct {
		stopped time.Duration
		want    string
	}{
		{12 * time.Second, "heartbeat a"},
		{29 * time.Second, "heartbeat a"},
		{2 * time.Minute, "a"},
	} {
		t.Run(fmt.Sprint("TTL-3 after ", c.stopped), func(t *testing.T) {
			r := xds.NewResource("a", []byte("1"))
			r.TTL = ttl
			r.Seal("")
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			view := xds.Tables{xds.Endpoint.URL: xds.NewTable(xds.Endpoint).With([]*xds.Resource{r, xds.NewResource("b", nil)})}
			s := protocol.NewSession(xds.Delta, nil, view, protocol.Options{ForceTTL: true})
			said := func() string {
				var out []string
				for r := range s.Responses() {
					for _, u := range r.Upserts {
						out = append(out, u.Name)
					}
					for _, b := range r.Beats {
						out = append(out, "heartbeat "+b.Name)
					}
					if err := s.Receive(xds.Request{Type: r.Type, Nonce: r.Nonce}); err != nil {
						t.Fatal(err)
					}
				}
				slices.Sort(out)
				return strings.Join(out, ", ")
			}
			s.Advance(now)
			if err := s.Receive(xds.Request{Type: xds.Endpoint, Node: &xds.Node{}, Subscribe: []string{"a", "b"}}); err != nil {
				t.Fatal(err)
			}
			if got := said(); got != "a, b" {
				t.Fatalf("at first: %s", got)
			}
			said()
			// The last sign that the client has had is at most a third of the TTL
			// before the first heartbeat that is missed.
			s.Advance(s.Deadline().Add(c.stopped - ttl/3))
			if got := said(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if next := s.Deadline(); next.IsZero() {
				t.Error("no heartbeat follows")
			}
		})
	}
}
