package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// "Going away (drain) costs no client a request: not ready first, then GOAWAY, then
// streams, spread over time." (SAFE-12) Two servers of one directory are restarted one
// after the other, as a rollout does, while clusters are replaced under the load of two
// Envoys that know both servers.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-12 ADS-3 ADS-9 two servers are restarted under two Envoys", func(t *testing.T) {
		r := newRollout(t, sotw, delta)
		for _, d := range r.servers {
			r.commits(4)
			r.restart(d)
			r.commits(4)
		}
		r.ends()
	})
}

// A rollout has two servers of one directory, and Envoys that get clusters, assignments and routes
// from either server.
type rollout struct {
	t       *testing.T
	servers []*daemon
	world   world
	clients []*client

	from [2]upstream
	link     // the present one
	n    int // commits
}

// A client is an Envoy under load.
type client struct {
	*envoy
	id      string
	variant variant
	call    caller
	load    *load
}

func newRollout(t *testing.T, variants ...variant) *rollout {
	t.Helper()
	r := &rollout{t: t, from: [2]upstream{newUpstream(t, "a"), newUpstream(t, "b")}}
	r.link = link{"backend", r.from[0]}
	idle := httpListener("idle", freePort(t), "ingress") // all Envoys have the same idle listener
	idle.BindToPort = wrapperspb.Bool(false)
	r.world = newWorld(patientCluster("backend"), assignment("backend", r.from[0].port), routes("ingress", "1", "backend"), idle)
	first := newDaemon(t, r.world, renamed, flags(t)...)
	r.servers = []*daemon{first, first.twin(flags(t)...)}
	for _, v := range variants {
		port := freePort(t)
		c := &client{id: "e2e " + v.String(), variant: v, call: calls(posts{&http.Transport{MaxIdleConnsPerHost: 100}}, port)}
		c.envoy = startEnvoy(t, c.id, v, r.servers[0].port, knows(r.servers[1].port), serving(t, port))
		eventually(t, soon, "the Envoy serves", c.call.gets(r.answer()))
		r.clients = append(r.clients, c)
	}
	for _, c := range r.clients {
		c.load = loaded(t, c.call, nil)
	}
	return r
}

// flags returns the flags of one server.
func flags(t *testing.T) []string {
	return []string{"--state-dir", t.TempDir(), "--drain", "1s", "--drain-delay", "100ms"}
}

// knows gives an Envoy a second server.
func knows(port int) func(bootstrap) {
	return func(b bootstrap) {
		c := b["static_resources"].(map[string]any)["clusters"].([]any)[0].(map[string]any)
		group := c["load_assignment"].(map[string]any)["endpoints"].([]any)[0].(map[string]any)
		group["lb_endpoints"] = append(group["lb_endpoints"].([]any), map[string]any{"endpoint": map[string]any{
			"address": map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": port}},
		}})
	}
}

// serving gives an Envoy a static listener with routes from the servers, because listeners from the
// servers have the same port at each Envoy.
func serving(t *testing.T, port int) func(bootstrap) {
	t.Helper()
	text, err := protojson.Marshal(httpListener("ingress", port, "ingress"))
	if err != nil {
		t.Fatal(err)
	}
	return func(b bootstrap) {
		b["static_resources"].(map[string]any)["listeners"] = []any{json.RawMessage(text)}
	}
}

func (r *rollout) answer() answer { return answer{r.link.from.name, r.generation()} }

// commit adds a cluster with a new name, points the routes to it, and deletes the previous cluster.
func (r *rollout) commit() {
	r.t.Helper()
	old := r.at
	r.n++
	r.link = link{fmt.Sprint("backend-", r.n), r.from[r.n%2]}
	r.world.drop(edsCluster(old, 0), assignment(old))
	r.world.set(patientCluster(r.at), assignment(r.at, r.link.from.port), routes("ingress", r.at, r.at))
	r.servers[0].write(r.world)
}

// every is the time between commits, long enough to load each separately.
const every = 250 * time.Millisecond

// commits commits some times.
func (r *rollout) commits(n int) {
	for range n {
		r.commit()
		time.Sleep(every)
	}
}

// restart ends a server in order, and starts it again. One commit happens while the server ends,
// and one while it is down.
func (r *rollout) restart(d *daemon) {
	r.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	for {
		select {
		case err := <-d.ended:
			if err != nil {
				r.t.Fatalf("the daemon on SIGTERM: %v", err)
			}
			r.commits(2)
			d.start()
			return
		case <-time.After(every):
			r.commit()
		}
	}
}

// ends checks that no request failed, and that each Envoy has exactly the last commit.
func (r *rollout) ends() {
	r.t.Helper()
	for _, c := range r.clients {
		eventually(r.t, generous, fmt.Sprint(c.variant, ": traffic follows to ", r.at), c.call.gets(r.answer()))
		eventually(r.t, generous, fmt.Sprint(c.variant, ": nothing lingers"), c.hasClusters(r.at))
		c.load.Stop()
		streams := 0
		for _, d := range r.servers {
			for _, line := range d.logged("client connected") {
				if line["node"] == c.id {
					streams++
				}
			}
		}
		r.t.Logf("%v: %d commits, %d streams; %d requests, %d failed", c.variant, r.n, streams, c.load.OK.Load()+c.load.Failed.Load(), c.load.Failed.Load())
		if streams < 2 { // whichever server had the first stream, that server has ended
			r.t.Errorf("%v: %d streams", c.variant, streams)
		}
		c.load.Unharmed(r.t)
	}
}
