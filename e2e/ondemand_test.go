package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ondemand "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// grace is how long a stream of one type keeps what others may refer to after
// it was lost.
const grace = 5 * time.Second

// Envoy's on-demand filter subscribes to a virtual host by the host of a request, and continues the
// request when the virtual host arrives.
func TestVirtualHostsOnDemand(t *testing.T) {
	t.Parallel()
	among(t, "OND-1 OND-3 OND-4 DELTA-11 a request for a host fetches it", func(t *testing.T, v variant) {
		lazy := newWorld(virtualHost("lazy", "one.example", "1", "backend"), alias(virtualHost("lazy", "two.example", "1", "other"), "deux.example"))
		port := freePort(t)
		s := newSite(t, sourcedBy(v, onDemand(lazy, renamed)), func(w world) {
			w.set(emptyRoutes("lazy"), onDemandListener("lazy", port, &ondemand.OnDemand{}))
		})
		at := func(host string) caller { return asking(t, port, func(r *http.Request) { r.Host = host }) }
		// The routes have no virtual host but those on demand, of which Envoy
		// knows nothing yet: it must not wait.
		s.start(v)
		exactly(t, 0, "unrequested virtual host", sentHosts(s.Since(0)))

		p := s.Mark("a request for a host")
		eventually(t, soon, "it is answered", at("one.example").gets(answer{"a", "1"}))
		s.quiet()
		carries(t, "VHDS lazy/one.example", s.Since(p).Responses())
		p = s.Mark("a request for a host by another name")
		eventually(t, soon, "it is answered", at("deux.example").gets(answer{"b", "1"}))
		s.quiet()
		carries(t, "VHDS lazy/two.example", s.Since(p).Responses())

		p = s.Mark("a request for an unknown host")
		began := time.Now()
		if err := at("nobody.example").fails("404")(); err != nil {
			t.Error("OND-1 DELTA-7 an unknown host: ", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("OND-1 DELTA-7 an unknown host took %v", took)
		}
		s.quiet()
		exactly(t, 1, "answer", s.Since(p).Responses("VHDS"))

		s.commit("the host springs into existence", func(world) { lazy.set(virtualHost("lazy", "nobody.example", "2", "other")) })
		eventually(t, soon, "it is answered", at("nobody.example").gets(answer{"b", "2"}))
		s.commit("a host changes", func(world) { lazy.set(virtualHost("lazy", "one.example", "3", "backend")) })
		eventually(t, soon, "the change is active", at("one.example").gets(answer{"a", "3"}))
		s.commit("a host is deleted", func(world) { lazy.drop(virtualHost("lazy", "one.example", "", "")) })
		eventually(t, grace+soon, "it is gone", at("one.example").fails("404"))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	}, delta, ownDelta)
}

// Clusters on demand: the request names the cluster.
func TestClustersOnDemand(t *testing.T) {
	t.Parallel()
	among(t, "OND-2 SUB-6 a request fetches its cluster", func(t *testing.T, v variant) {
		lazy, port := newWorld(edsCluster("lazy", time.Second)), freePort(t)
		s := newSite(t, sourcedBy(v, onDemand(lazy, renamed)), func(w world) {
			r := routes("wanted", "1", "")
			r.VirtualHosts[0].Routes[0].GetRoute().ClusterSpecifier = &route.RouteAction_ClusterHeader{ClusterHeader: "x-cluster"}
			w.set(assignment("lazy", newUpstream(t, "lazy").port), r)
			w.set(onDemandListener("wanted", port, &ondemand.OnDemand{Odcds: &ondemand.OnDemandCds{Source: ads(), Timeout: durationpb.New(10 * time.Second)}}))
		})
		to := func(cluster string) caller {
			return asking(t, port, func(r *http.Request) { r.Header.Set("x-cluster", cluster) })
		}
		s.start(v)
		eventually(t, soon, "the wildcard's clusters, and no other", s.envoy.hasClusters("backend", "other"))
		s.Mark("a request for a cluster")
		eventually(t, soon, "it is answered", to("lazy").gets(answer{"lazy", "1"}))
		eventually(t, soon, "the clusters", s.envoy.hasClusters("backend", "other", "lazy"))
		s.quiet()
		s.Mark("a request for an unknown cluster")
		began := time.Now()
		if err := to("nobody").fails("503")(); err != nil {
			t.Error("OND-2 an unknown cluster: ", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("OND-2 an unknown cluster took %v", took)
		}
		s.commit("another cluster is new", func(w world) { w.set(edsCluster("third", time.Second), assignment("third", s.a.port)) })
		eventually(t, soon, "the wildcard still holds", s.envoy.hasClusters("backend", "other", "lazy", "third"))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	}, delta)
}

// sentHosts are the responses with virtual hosts.
func sentHosts(rs tap.Records) tap.Records {
	return slices.DeleteFunc(rs.Responses("VHDS"), func(r tap.Record) bool { return len(r.Resources) == 0 })
}

// alias makes a virtual host found by another host's name, too.
func alias(r *discovery.Resource, host string) *discovery.Resource {
	var h route.VirtualHost
	if err := r.Resource.UnmarshalTo(&h); err != nil {
		panic(err)
	}
	h.Domains = append(h.Domains, host)
	routes, _, _ := strings.Cut(r.Name, "/")
	r.Resource, r.Aliases = pack(&h), []string{routes + "/" + host}
	return r
}

// onDemandListener is an httpListener that fetches what a request wants.
func onDemandListener(name string, port int, filter *ondemand.OnDemand) *listener.Listener {
	l := httpListener(name, port, name)
	m := manager(name, name)
	m.HttpFilters = append([]*hcm.HttpFilter{{
		Name:       "envoy.filters.http.on_demand",
		ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(filter)},
	}}, m.HttpFilters...)
	l.FilterChains[0].Filters[0].ConfigType = &listener.Filter_TypedConfig{TypedConfig: pack(m)}
	return l
}

// onDemand is a layout that has a world of resources on demand besides.
func onDemand(lazy world, l layout) layout {
	return func(dir string, n int, w world) error {
		all := map[string][]any{}
		for _, m := range lazy {
			b, err := protojson.Marshal(pack(m))
			if err != nil {
				return err
			}
			var r map[string]any
			if err := json.Unmarshal(b, &r); err != nil {
				return err
			}
			r["x-chancery"] = map[string]bool{"on_demand": true}
			all["resources"] = append(all["resources"], r)
		}
		b, err := json.Marshal(all)
		if err != nil {
			return err
		}
		next := filepath.Join(filepath.Dir(dir), "lazy.json")
		if err := os.WriteFile(next, b, 0o644); err != nil {
			return err
		}
		if err := os.Rename(next, filepath.Join(dir, "lazy.json")); err != nil {
			return err
		}
		return l(dir, n, w)
	}
}
