package chaos

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// A client subscribes to all clusters and listeners and to their references, over one aggregated
// stream. It accepts all responses. When its stream ends, it opens another and states what it has.
type client struct {
	*fleet
	id    string
	delta bool
	conn  *grpc.ClientConn

	mu       sync.Mutex
	has      map[*xds.Type]map[string]string // name to version
	accepted map[*xds.Type]string            // version_info; SotW
	nonce    map[*xds.Type]string            // of this stream
	asked    map[*xds.Type][]string          // names, on this stream
	since    time.Time                       // when it lost its stream; zero: it has one
}

// run opens one stream after the other until ctx is done.
func (c *client) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		told, err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		c.lost(c, err)
		if told {
			pause = firstPause
		}
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(pause)))):
		case <-ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// A client that has lost its stream waits up to firstPause, then up to twice as
// long, and so on up to lastPause. (Envoy: 0.5 s and 30 s; gRPC: 1 s and 120 s.)
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 2 * time.Second
)

// stream runs one stream. It reports whether it got a response.
func (c *client) stream(ctx context.Context) (told bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	if c.delta {
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	talk := c.sotw
	if c.delta {
		talk = c.incremental
	}
	return talk(s)
}

// begins records a new stream, and drops the state of the last one.
func (c *client) begins() {
	c.nonce, c.asked = map[*xds.Type]string{}, map[*xds.Type][]string{}
	c.without(time.Since(c.since))
	c.since = time.Time{}
}

func (c *client) locked(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// heard counts the resources of a response. The argument said reports whether the client had stated
// its versions.
func (c *client) heard(resources int, said bool) {
	if said {
		c.resources.Add(int64(resources))
	} else {
		c.named.Add(int64(resources))
	}
}

// names returns the names of a type to which the client's other resources refer.
func (c *client) names(t *xds.Type) []string {
	by := map[*xds.Type]*xds.Type{xds.Endpoint: xds.Cluster, xds.Route: xds.Listener}[t]
	return slices.Sorted(maps.Keys(c.has[by]))
}

func (c *client) sotw(s grpc.ClientStream) (told bool, err error) {
	say := func(t *xds.Type) error {
		c.asked[t] = c.names(t)
		return s.SendMsg(&discovery.DiscoveryRequest{
			Node: &core.Node{Id: c.id, UserAgentName: "chaos"}, TypeUrl: t.URL,
			VersionInfo: c.accepted[t], ResponseNonce: c.nonce[t], ResourceNames: c.asked[t],
		})
	}
	err = c.locked(func() error {
		c.begins()
		for _, t := range kinds {
			if t.FullState || len(c.names(t)) > 0 {
				if err := say(t); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for err == nil {
		var m discovery.DiscoveryResponse
		if err = s.RecvMsg(&m); err != nil {
			break
		}
		told = true
		err = c.locked(func() error {
			t := xds.TypeOf(m.TypeUrl)
			c.heard(len(m.Resources), t.FullState)
			c.accepted[t], c.nonce[t] = m.VersionInfo, m.Nonce
			now := map[string]string{}
			for _, a := range m.Resources {
				name := nameOf(a.Value)
				now[name] = xds.NewResource(xds.Cluster, name, a.Value).Version
			}
			if t.FullState {
				c.goes(c, t, c.has[t], now)
				c.has[t] = now
			} else {
				maps.Copy(c.has[t], now)
			}
			if err := say(t); err != nil {
				return err
			}
			return c.follow(t, func(t *xds.Type, _, _ []string) error { return say(t) })
		})
	}
	return told, err
}

func (c *client) incremental(s grpc.ClientStream) (told bool, err error) {
	say := func(m *discovery.DeltaDiscoveryRequest) error { return s.SendMsg(m) }
	err = c.locked(func() error {
		c.begins()
		for _, t := range kinds {
			names := []string{xds.Wildcard}
			if !t.FullState {
				if names = c.names(t); len(names) == 0 {
					continue
				}
				c.asked[t] = names
			}
			if err := say(&discovery.DeltaDiscoveryRequest{
				Node: &core.Node{Id: c.id, UserAgentName: "chaos"}, TypeUrl: t.URL,
				ResourceNamesSubscribe: names, InitialResourceVersions: maps.Clone(c.has[t]),
			}); err != nil {
				return err
			}
		}
		return nil
	})
	for err == nil {
		var m discovery.DeltaDiscoveryResponse
		if err = s.RecvMsg(&m); err != nil {
			break
		}
		told = true
		err = c.locked(func() error {
			t := xds.TypeOf(m.TypeUrl)
			c.heard(len(m.Resources), true)
			now := maps.Clone(c.has[t])
			for _, r := range m.Resources {
				now[r.Name] = r.Version
			}
			for _, name := range m.RemovedResources {
				delete(now, name)
			}
			c.goes(c, t, c.has[t], now)
			c.has[t] = now
			if err := say(&discovery.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}); err != nil {
				return err
			}
			return c.follow(t, func(t *xds.Type, more, fewer []string) error {
				c.asked[t] = c.names(t)
				return say(&discovery.DeltaDiscoveryRequest{TypeUrl: t.URL, ResourceNamesSubscribe: more, ResourceNamesUnsubscribe: fewer})
			})
		})
	}
	return told, err
}

// follow changes the subscriptions to the references of a type's resources, and drops resources
// without a reference.
func (c *client) follow(t *xds.Type, ask func(t *xds.Type, more, fewer []string) error) error {
	to := map[*xds.Type]*xds.Type{xds.Cluster: xds.Endpoint, xds.Listener: xds.Route}[t]
	if to == nil {
		return nil
	}
	now := c.names(to)
	lacks := func(all []string) func(string) bool {
		return func(name string) bool { _, has := slices.BinarySearch(all, name); return has }
	}
	more := slices.DeleteFunc(slices.Clone(now), lacks(c.asked[to]))
	fewer := slices.DeleteFunc(slices.Clone(c.asked[to]), lacks(now))
	if len(more)+len(fewer) == 0 {
		return nil
	}
	for _, name := range fewer {
		delete(c.has[to], name)
	}
	return ask(to, more, fewer)
}

// nameOf returns the name in an encoded resource: its first field, in all [kinds].
func nameOf(body []byte) string {
	if n, typ, size := protowire.ConsumeTag(body); n == 1 && typ == protowire.BytesType {
		name, _ := protowire.ConsumeString(body[size:])
		return name
	}
	return ""
}

// lacks returns how many resources of the content the client lacks, and how many other resources it
// has. Without a stream it lacks everything.
func (c *client) lacks(want content) (missing, stale int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range kinds {
		for name, version := range want.versions[t] {
			if !c.since.IsZero() || c.has[t][name] != version {
				missing++
			}
		}
		for name := range c.has[t] {
			if _, is := want.versions[t][name]; !is {
				stale++
			}
		}
	}
	return missing, stale
}

// goes records removals of the permanent clusters and their assignments that the client got.
func (f *fleet) goes(c *client, t *xds.Type, was, now map[string]string) {
	for name := range was {
		if _, still := now[name]; !still && strings.HasPrefix(name, "filler-") {
			f.wrong(c.id + " is told that " + t.String() + " " + name + " is gone")
		}
	}
}
