package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A client that reads and never answers gets each new state, at most every 5 s. After some minutes
// the server ends the stream with the reason.
func TestClientNeverAnswers(t *testing.T) {
	within(t, "SAFE-1 a client that reads and never answers", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, res("e", "0"))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "mute"}, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"e"}})
		responses := 0
		for i := range 100 {
			if _, err := c.s.Recv(); err != nil {
				if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "a client must answer each response with an ACK or a NACK") {
					t.Error(err)
				}
				break
			}
			responses++
			time.Sleep(5 * time.Second)
			w.set(xds.Endpoint, res("e", fmt.Sprint(i+1)))
		}
		if responses != 68 {
			t.Errorf("the stream ended after %d responses", responses)
		}
		if n := w.Stats().Throttled["unanswered"]; n != 1 || !strings.Contains(w.log.String(), "limit=unanswered") || !strings.Contains(w.log.String(), "node=mute") {
			t.Errorf("counted %d, logged\n%s", n, w.log.String())
		}
	})
}
