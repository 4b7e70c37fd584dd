package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/e2e/tap"
)

var grpcTypes = []string{"LDS", "RDS", "CDS", "EDS"} // as a client asks

// One client runs through all steps. After each step no message is in flight.
func TestGRPC(t *testing.T) {
	t.Parallel()
	everyGRPC(t, func(t *testing.T, of implementation) {
		s := newGRPC(t, of)
		s.dial("1")

		s.step("TYP-3 SOTW-1 SOTW-8 SUB-3 only what is asked for, once", func(t *testing.T) {
			s.gets("the first call")
			s.quiet()
			rs := s.Since(0)
			carries(t, "LDS greeter.local, RDS greeter_route, CDS greeter, EDS greeter", rs.Responses())
			var asked []string
			for _, r := range rs.Requests().Where(func(r tap.Record) bool { return r.Nonce == "" }) {
				asked = append(asked, r.Type)
			}
			if !slices.Equal(asked, grpcTypes) {
				t.Errorf("subscribed to %v, want %v", asked, grpcTypes)
			}

			p := s.commit("what it does not ask for changes", func(w world) {
				w.set(edsCluster("else", 2*time.Second), assignment("else", s.a.port), routes("else_route", "2", "else"))
				w.drop(apiListener("third.local", ""))
			})
			s.nextChange()
			carries(t, "EDS greeter", s.Since(p).Responses())
		})

		s.step("SOTW-9 endpoints move", func(t *testing.T) {
			l := loaded(t, s.call, nil)
			p := s.Mark("load begins")
			for range 6 {
				s.nextChange()
			}
			l.Unharmed(t)
			exactly(t, 6, "EDS response", s.Since(p).Responses("EDS"))
		})

		s.step("WARM-2 cluster changed in place", func(t *testing.T) {
			l := loaded(t, s.call, nil)
			judge := func(p tap.Point) {
				t.Helper()
				s.acked(p, "CDS", "EDS")
				s.gets("traffic is where the assignment says")
				s.quiet()
				exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))
				exactly(t, 1, "EDS response", s.Since(p).Responses("EDS"))
			}
			judge(s.commit("greeter's policy changes", func(w world) { w.set(edsCluster("greeter", 2*time.Second)) }))
			s.at = s.other()
			judge(s.commit("greeter's policy changes, and it moves", func(w world) {
				c := edsCluster("greeter", 3*time.Second)
				c.RespectDnsTtl = true // means nothing to the client
				w.set(c, assignment("greeter", s.at.port))
			}))
			l.Unharmed(t)
		})

		s.step("ADS-2 responses leave in their order", func(t *testing.T) {
			for i := range 3 {
				gen := fmt.Sprint(2 + i)
				l := apiListener("greeter.local", "greeter_route")
				l.StatPrefix = gen
				s.at = s.other()
				p := s.commit("all that it asks for changes", func(w world) {
					w.set(l, routes("greeter_route", gen, "greeter"),
						edsCluster("greeter", time.Duration(3+i)*time.Second), assignment("greeter", s.at.port))
				})
				rs := s.acked(p, grpcTypes...)
				s.gets("traffic moves")
				s.quiet()
				carries(t, "CDS greeter, EDS greeter, LDS greeter.local, RDS greeter_route", rs.Responses())
			}
		})

		s.step("ADS-2 ADS-3 ADS-4 clusters replaced under load", func(t *testing.T) {
			l := loaded(t, s.call, of.forgive)
			for i := range 4 {
				old := s.cluster
				s.cluster, s.at = fmt.Sprint("greeter-", i), s.other()
				p := s.commit("another cluster takes its place", func(w world) {
					w.drop(edsCluster(old, 0), assignment(old))
					w.set(edsCluster(s.cluster, time.Second), assignment(s.cluster, s.at.port), routes("greeter_route", s.cluster, s.cluster))
				})
				s.gets("traffic moves")
				// The client ACKs its routes, then asks for the cluster they
				// lead to, and stays with the old one until it has the new.
				for _, r := range s.Since(p).Responses("CDS") {
					if r.Has(s.cluster) {
						break
					}
					if !r.Has(old) {
						t.Errorf("%s is withdrawn before the client has %s:\n%v", old, s.cluster, r)
					}
				}
				s.sees(p, patience, "it lets go of the old cluster", wants([]string{s.cluster}, "CDS", "EDS"))
				s.quiet()
			}
			l.Unharmed(t)
		})

		s.step("SOTW-9 SOTW-11 routes go and return", func(t *testing.T) {
			l := loaded(t, s.call, nil)
			p := s.commit("routes deleted", func(w world) { w.drop(routes("greeter_route", "", "")) })
			s.nextChange()
			exactly(t, 0, "RDS response", s.Since(p).Responses("RDS"))
			p = s.commit("routes back", func(w world) { w.set(routes("greeter_route", "2", s.cluster)) })
			s.acked(p, "RDS")
			s.quiet()
			l.Unharmed(t)
		})

		s.step("SOTW-5 SOTW-21 refused once, the good beside it taken, reverted", func(t *testing.T) {
			l := loaded(t, s.call, nil)
			p := s.commit("a spare cluster", func(w world) {
				r := routes("greeter_route", "3", s.cluster)
				r.VirtualHosts[0].Routes = append([]*route.Route{routeTo("/spare", "spare")}, r.VirtualHosts[0].Routes...)
				w.set(r, edsCluster("spare", time.Second), assignment("spare", s.a.port))
			})
			s.sees(p, patience, "ACK of its assignment", func(rs tap.Records) bool {
				return has(rs.ACKs(), "EDS spare") && has(rs.Responses(), "EDS spare")
			})
			s.quiet()
			exactly(t, 0, "NACK before", s.Since(0).NACKs())

			p = s.commit("the spare cluster is bad", func(w world) { w.set(brokenCluster("spare")) })
			s.refused(p)
			s.nextChange()
			exactly(t, 1, "NACK", s.Since(p).NACKs())
			exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))
			nack := s.Since(p).NACKs()[0]

			p = s.commit("and as it was", func(w world) { w.set(edsCluster("spare", time.Second)) })
			s.acked(p, "CDS", "EDS")
			s.nextChange()
			exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))
			exactly(t, 0, "NACK", s.Since(p).NACKs())
			if r := s.Since(p).Responses("CDS")[0]; r.Version != nack.Version && !of.partial {
				t.Errorf("after going back the version is not the one that the client states:\n%v\n%v", nack, r)
			}

			s.at = s.other()
			p = s.commit("spare is bad, greeter's policy changes, and it moves", func(w world) {
				w.set(brokenCluster("spare"), edsCluster(s.cluster, 2*time.Second), assignment(s.cluster, s.at.port))
			})
			s.refused(p)
			s.gets("traffic moves")
			s.nextChange()
			exactly(t, 1, "NACK", s.Since(p).NACKs())
			exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))

			p = s.commit("spare fixed", func(w world) { w.set(edsCluster("spare", time.Second)) })
			s.acked(p, "CDS", "EDS")
			s.nextChange()
			exactly(t, 0, "NACK", s.Since(p).NACKs())

			p = s.commit("spare goes", func(w world) {
				w.set(routes("greeter_route", "4", s.cluster))
				w.drop(edsCluster("spare", 0), assignment("spare"))
			})
			s.sees(p, patience, "it lets go of the spare cluster", wants([]string{s.cluster}, "CDS", "EDS"))
			s.quiet()
			l.Unharmed(t)
		})

		otherListener := apiListener("greeter.local", "greeter_route")
		otherListener.StatPrefix = "other"
		s.step("SOTW-8 SOTW-11 listener goes and returns", func(*testing.T) { s.goes("LDS", otherListener, of.drops...) })
		s.step("SOTW-8 SOTW-11 cluster goes and returns", func(*testing.T) {
			c := edsCluster(s.cluster, time.Second)
			c.CircuitBreakers = &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(100_000)}}}
			s.goes("CDS", c, "EDS")
		})

		s.step("SOTW-11 everything comes after the client", func(t *testing.T) {
			all := []proto.Message{
				apiListener("greeter.local", "greeter_route"), routes("greeter_route", "1", s.cluster),
				edsCluster(s.cluster, time.Second), assignment(s.cluster, s.at.port),
			}
			s.leave()
			s.commit("everything goes", func(w world) { w.drop(all...) })
			eventually(t, patience, "the daemon has read the files", s.daemon.serves("else"))
			p := s.Mark("another client")
			s.dial("late")
			first := make(chan error, 1)
			go func() {
				// The client waits up to 15 s for each resource.
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				_, err := s.call(ctx)
				first <- err
			}()
			for i, typ := range grpcTypes {
				// The server can report that a listener or a cluster does not exist.
				s.sees(p, patience, "the client subscribes to "+typ, func(rs tap.Records) bool {
					return has(rs.Requests(), typ) && (typ == "RDS" || typ == "EDS" || has(rs.ACKs(), typ))
				})
				s.commit(typ+" comes", func(w world) { w.set(all[i]) })
			}
			s.gets("calls succeed")
			if err := <-first; err != nil {
				t.Errorf("the call that was made before anything was there: %v", err)
			}
			s.quiet()
		})

		recorded(t, "grpc/"+of.name, orderly(s.Since(0)))
		// Below, the order of the requests varies by chance.

		s.step("SOTW-12 SOTW-15 killed and restarted, answered once", func(t *testing.T) {
			l := loaded(t, s.call, nil)
			had := s.Since(0)
			s.kill()
			p := s.restart()
			// It asks in no particular order. An assignment that it had
			// before its cluster comes again behind that (WARM-2).
			again := func(rs tap.Records) (before, behind tap.Records) {
				cds := slices.IndexFunc(rs, func(r tap.Record) bool { return r.Kind == tap.Response && r.Type == "CDS" })
				if cds < 0 {
					return rs.Responses("EDS"), nil
				}
				return rs[:cds].Responses("EDS"), rs[cds:].Responses("EDS")
			}
			s.sees(p, patience, "it subscribes to all types again", func(rs tap.Records) bool {
				_, behind := again(rs)
				return has(rs.Responses(), grpcTypes...) && len(behind) > 0
			})
			s.quiet()
			s.nextChange()
			rs := s.Since(p)
			for _, typ := range grpcTypes {
				acks := had.ACKs(typ)
				last, first := acks[len(acks)-1], rs.Requests(typ)[0]
				if first.Nonce != "" || first.Version != last.Version || !slices.Equal(first.Names, last.Names) {
					t.Errorf("begins with\n%v\nafter\n%v", first, last)
				}
			}
			for _, typ := range grpcTypes[:3] {
				exactly(t, 1, typ+" response", rs.Responses(typ))
			}
			before, behind := again(rs)
			if len(before) > 1 {
				t.Errorf("%d EDS responses before CDS", len(before))
			}
			exactly(t, 2, "EDS response behind CDS, one of them the next change,", behind)
			exactly(t, 0, "NACK", rs.NACKs())
			l.Unharmed(t)
		})

		s.step("SOTW-8 SOTW-12 the listener it had before the restart goes and returns", func(*testing.T) {
			s.goes("LDS", otherListener, of.drops...)
		})

		of.announced(t, s.Since(0))
	})
}
