package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// serve runs a server on a port of the loopback that says its implementation's
// name to those that its listener and routes let in.
func (g implementation) serve(t *testing.T, id string, management, port int) {
	t.Helper()
	if g.command != nil {
		g.run(t, grpcBootstrap(t, id, management), "serve", fmt.Sprint(port))
		return
	}
	s, err := xds.NewGRPCServer(xds.BootstrapContentsForTesting(grpcBootstrap(t, id, management)),
		grpc.Creds(insecure.NewCredentials()), grpc.ForceServerCodec(text{}))
	if err != nil {
		t.Fatal(err)
	}
	s.RegisterService(&greeterService, g.name)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
}

// serverListener returns the listener that a gRPC server requests for its address. The listener
// must have the address.
func serverListener(ip string, port int, routes string) *listener.Listener {
	l := httpListener(fmt.Sprintf("grpc/server?xds.resource.listening_address=%s:%d", ip, port), port, routes)
	l.GetAddress().GetSocketAddress().Address = ip
	return l
}

// serverRoutes let a gRPC server handle calls whose path begins with the prefix.
func serverRoutes(name, prefix string) *route.RouteConfiguration {
	return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{{
		Name:    "all",
		Domains: []string{"*"},
		Routes: []*route.Route{{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: prefix}},
			Action: &route.Route_NonForwardingAction{NonForwardingAction: &route.NonForwardingAction{}},
		}},
	}}}
}

// A gRPC server requests the listener of its address, serves while the listener exists, and follows
// its routes.
func TestGRPCServer(t *testing.T) {
	t.Parallel()
	everyGRPC(t, func(t *testing.T, of implementation) {
		port := freePort(t)
		inbound := serverListener(of.binds, port, "inbound")
		all, none := serverRoutes("inbound", "/e2e.Greeter/"), serverRoutes("inbound", "/other/")
		r := newRig(t, newWorld(serverListener("127.0.0.1", 1, "inbound"), all), mounted)
		step := func(name string, f func(t *testing.T)) { r.step(t, name, f) }
		call := greetAt(t, port)
		serves := func(what string) {
			r.t.Helper()
			eventually(r.t, patience, what, call.gets(answer{of.name, ""}))
			r.quiet()
		}
		refuses := func(what string) {
			r.t.Helper()
			eventually(r.t, patience, what, call.fails("Unavailable"))
			r.quiet()
		}
		acked := func(p tap.Point, typ string) {
			r.t.Helper()
			r.sees(p, patience, "ACK of "+typ, func(rs tap.Records) bool { return has(rs.ACKs(), typ) })
		}
		of.serve(t, "1", r.Addr().Port, port)

		step("SOTW-11 SUB-3 its listener comes after it", func(t *testing.T) {
			r.sees(0, patience, "it subscribes to its listener", func(rs tap.Records) bool { return has(rs.ACKs(), "LDS "+inbound.GetName()) })
			refuses("no calls without a listener")
			r.commit("listener comes", func(w world) { w.set(inbound) })
			serves("calls are answered")
			carries(t, "LDS "+inbound.GetName()+", RDS inbound", r.Since(0).Carrying())
		})

		step("SOTW-9 routes change", func(*testing.T) {
			r.commit("routes lead elsewhere", func(w world) { w.set(none) })
			refuses("no calls without a route")
			r.commit("routes as before", func(w world) { w.set(all) })
			serves("calls are answered")
		})

		step("SOTW-11 the listener names other routes", func(*testing.T) {
			r.commit("other routes", func(w world) {
				w.set(serverListener(of.binds, port, "others"), serverRoutes("others", "/other/"))
			})
			refuses("no calls by the other routes")
			r.sees(0, patience, "it subscribes to the other routes only", wants([]string{"others"}, "RDS"))
			r.commit("the first routes", func(w world) { w.set(inbound) })
			serves("calls are answered")
			r.sees(0, patience, "it subscribes to the first routes only", wants([]string{"inbound"}, "RDS"))
		})

		step("SOTW-5 SOTW-21 refused once, reverted", func(t *testing.T) {
			l := loaded(t, call, nil)
			p := r.commit("a listener that no gRPC server can be", func(w world) {
				bad := serverListener(of.binds, port, "inbound")
				bad.UseOriginalDst = wrapperspb.Bool(true)
				w.set(bad)
			})
			r.sees(p, patience, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("LDS")) > 0 })
			next := serverRoutes("inbound", "/e2e.")
			q := r.commit("routes change", func(w world) { w.set(next) })
			acked(q, "RDS")
			exactly(t, 1, "NACK", r.Since(p).NACKs())
			exactly(t, 1, "LDS response", r.Since(p).Responses("LDS"))
			p = r.commit("listener as it was", func(w world) { w.set(inbound) })
			acked(p, "LDS")
			r.quiet()
			l.Unharmed(t)
			serves("calls are answered")
			exactly(t, 1, "NACK", r.Since(0).NACKs())
		})

		step("SOTW-8 listener goes and returns", func(t *testing.T) {
			p := r.commit("listener deleted", func(w world) { w.drop(inbound) })
			refuses("no calls without a listener")
			if of.forgets {
				r.sees(p, patience, "it subscribes to no routes", wants(nil, "RDS"))
			}
			p = r.commit("listener back", func(w world) { w.set(inbound) })
			if of.blind {
				acked(p, "LDS")
				refuses("no calls for good")
				r.commit("listener names other routes", func(w world) {
					w.set(serverListener(of.binds, port, "others"), serverRoutes("others", "/e2e."))
				})
				serves("calls are answered")
				p = r.commit("listener names the first routes", func(w world) { w.set(inbound) })
				acked(p, "RDS")
				r.sees(p, patience, "it subscribes to the first routes only", wants([]string{"inbound"}, "RDS"))
			}
			serves("calls are answered")
		})
		recorded(t, "grpc/"+of.name+" server", orderly(unported(r.Since(0), port)))

		step("SOTW-12 serves while there is no management server", func(t *testing.T) {
			l := loaded(t, call, nil)
			r.kill()
			p := r.restart()
			r.sees(p, patience, "it asks again", func(rs tap.Records) bool { return has(rs.Responses(), "LDS", "RDS") })
			r.quiet()
			l.Unharmed(t)
			r.commit("routes lead elsewhere", func(w world) { w.set(none) })
			refuses("no calls without a route")
		})
		of.announced(t, r.Since(0))
	})
}

// unported removes the port, which varies by chance, from the records.
func unported(rs tap.Records, port int) tap.Records {
	number := fmt.Sprint(port)
	for i, r := range rs {
		rs[i].Names = slices.Clone(r.Names)
		for j, name := range r.Names {
			rs[i].Names[j] = strings.ReplaceAll(name, number, "PORT")
		}
		rs[i].Resources = slices.Clone(r.Resources)
		for j, x := range r.Resources {
			rs[i].Resources[j].Name = strings.ReplaceAll(x.Name, number, "PORT")
		}
	}
	return rs
}
