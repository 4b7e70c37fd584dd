package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// A gsite is a gRPC client that dials xds:///greeter.local. Beside what it asks
// for, the daemon has resources that are none of its business.
type gsite struct {
	*rig
	t    *testing.T
	a, b upstream // greeter is at a
	call caller
}

func startGRPC(t *testing.T) *gsite {
	t.Helper()
	s := newGRPC(t)
	s.start("1")
	return s
}

// newGRPC starts the daemon without some of its resources, and no client yet.
func newGRPC(t *testing.T, without ...proto.Message) *gsite {
	t.Helper()
	s := &gsite{t: t, a: newGreeter(t, "a"), b: newGreeter(t, "b")}
	w := newWorld(
		apiListener("greeter.local", "greeter_route"), routes("greeter_route", "1", "greeter"),
		edsCluster("greeter", time.Second), assignment("greeter", s.a.port),
		apiListener("else.local", "else_route"), routes("else_route", "1", "else"),
		edsCluster("else", time.Second), assignment("else", s.b.port),
	)
	w.drop(without...)
	s.rig = newRig(t, w, mounted)
	return s
}

func (s *gsite) start(id string) {
	s.t.Helper()
	s.call = dialXDS(s.t, id, s.Addr().Port)
	eventually(s.t, 5*time.Second, "greeter answers", s.call.gets(answer{"a", ""}))
	s.quiet()
}

// nextChange moves the client's endpoints and waits for it.
func (s *gsite) nextChange(from upstream) {
	s.t.Helper()
	s.commit("greeter moves to "+from.name, func(w world) { w.set(assignment("greeter", from.port)) })
	eventually(s.t, soon, "the next change arrives", s.call.gets(answer{from.name, ""}))
	s.quiet()
}

// newGreeter is a gRPC server that says who it is.
func newGreeter(t *testing.T, name string) upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, greeter{name: name})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return upstream{name, l.Addr().(*net.TCPAddr).Port}
}

type greeter struct {
	testpb.UnimplementedTestServiceServer
	name string
}

func (g greeter) UnaryCall(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{ServerId: g.name}, nil
}

// dialXDS is a caller by way of a gRPC client whose management server is on the
// loopback's port.
func dialXDS(t *testing.T, id string, port int) caller {
	t.Helper()
	builder, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": "127.0.0.1:%d", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": %q, "cluster": "e2e"}
	}`, port, id))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///greeter.local", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := testpb.NewTestServiceClient(conn)
	return func(ctx context.Context) (answer, error) {
		r, err := client.UnaryCall(ctx, &testpb.SimpleRequest{})
		return answer{from: r.GetServerId()}, err
	}
}

// switching excuses a race of the client's own: at the moment of a switch of
// routes it may fail a call for a cluster that it has already let go of, though
// the server has not.
func switching(err error) bool {
	return strings.Contains(err.Error(), "unknown cluster selected for RPC")
}

func TestGRPC(t *testing.T) {
	t.Parallel()

	t.Run("TYP-3 SOTW-1 SOTW-8 SUB-3 only what is asked for, once", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		carries(t, "LDS greeter.local, RDS greeter_route, CDS greeter, EDS greeter", s.Since(0).Responses())
		p := s.commit("what it does not ask for changes", func(w world) {
			w.set(edsCluster("else", 2*time.Second), assignment("else", s.a.port), routes("else_route", "2", "else"))
			w.drop(apiListener("else.local", ""))
		})
		s.nextChange(s.b)
		carries(t, "EDS greeter", s.Since(p).Responses())
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})

	t.Run("SOTW-9 endpoints move", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		l := loaded(t, s.call, nil)
		for range 5 {
			s.nextChange(s.b)
			s.nextChange(s.a)
		}
		l.unharmed(t)
		exactly(t, 10+1, "EDS response", s.Since(0).Responses("EDS"))
	})

	t.Run("WARM-2 cluster changed in place", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		l := loaded(t, s.call, nil)
		p := s.commit("greeter's policy changes", func(w world) {
			c := edsCluster("greeter", 2*time.Second)
			c.RespectDnsTtl = true // means nothing to the client
			w.set(c, assignment("greeter", s.b.port))
		})
		eventually(t, soon, "traffic moves", s.call.gets(answer{"b", ""}))
		s.quiet()
		exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))
		exactly(t, 1, "EDS response", s.Since(p).Responses("EDS"))
		l.unharmed(t)
	})

	t.Run("ADS-2 ADS-3 ADS-4 clusters replaced under load", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		l := loaded(t, s.call, switching)
		old, from := "greeter", s.b
		for i := range 10 {
			next := fmt.Sprint("greeter-", i)
			p := s.commit(next+" takes the place of "+old, func(w world) {
				w.drop(edsCluster(old, 0), assignment(old))
				w.set(edsCluster(next, time.Second), assignment(next, from.port), routes("greeter_route", next, next))
			})
			eventually(t, soon, "traffic moves", s.call.gets(answer{from.name, ""}))
			// The client ACKs its routes, then asks for the cluster they lead
			// to, and stays with the old one until it has the new.
			for _, r := range s.Since(p).Responses("CDS") {
				if r.Has(next) {
					break
				}
				if !r.Has(old) {
					t.Errorf("%s is withdrawn before the client has %s:\n%v", old, next, r)
				}
			}
			old = next
			if from == s.a {
				from = s.b
			} else {
				from = s.a
			}
		}
		s.quiet()
		l.unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})

	t.Run("ADS-2 responses leave in their order", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		for i := range 5 {
			gen, ports := fmt.Sprint(2+i), []int{s.a.port, s.b.port}
			l := apiListener("greeter.local", "greeter_route")
			l.StatPrefix = gen
			p := s.commit("all that it asks for changes", func(w world) {
				w.set(l, routes("greeter_route", gen, "greeter"),
					edsCluster("greeter", time.Duration(2+i)*time.Second), assignment("greeter", ports[:2-i%2]...))
			})
			rs := s.sees(p, soon, "the routes", func(rs tap.Records) bool { return len(rs.ACKs("RDS")) > 0 })
			s.quiet()
			carries(t, "CDS greeter, EDS greeter, LDS greeter.local, RDS greeter_route", rs.Responses())
		}
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})

	t.Run("SOTW-8 SOTW-11 listener goes and returns", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		s.commit("listener deleted", func(w world) { w.drop(apiListener("greeter.local", "")) })
		eventually(t, soon, "calls fail", s.call.fails("Unavailable"))
		s.commit("listener back", func(w world) { w.set(apiListener("greeter.local", "greeter_route")) })
		eventually(t, soon, "calls succeed", s.call.gets(answer{"a", ""}))
	})

	t.Run("SOTW-8 SOTW-11 cluster goes and returns", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		s.commit("cluster deleted", func(w world) { w.drop(edsCluster("greeter", 0), assignment("greeter")) })
		eventually(t, soon, "calls fail", s.call.fails("Unavailable"))
		s.commit("cluster back", func(w world) { w.set(edsCluster("greeter", time.Second), assignment("greeter", s.b.port)) })
		eventually(t, soon, "calls succeed", s.call.gets(answer{"b", ""}))
	})

	t.Run("SOTW-9 SOTW-11 routes go and return", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		l := loaded(t, s.call, nil)
		p := s.commit("routes deleted", func(w world) { w.drop(routes("greeter_route", "", "")) })
		s.nextChange(s.b)
		exactly(t, 0, "RDS response", s.Since(p).Responses("RDS"))
		p = s.commit("routes back", func(w world) { w.set(routes("greeter_route", "2", "greeter")) })
		s.sees(p, soon, "RDS", func(rs tap.Records) bool { return len(rs.ACKs("RDS")) == 1 })
		l.unharmed(t)
	})

	t.Run("SOTW-11 everything comes after the client", func(t *testing.T) {
		t.Parallel()
		listener, routes, cluster := apiListener("greeter.local", "greeter_route"), routes("greeter_route", "1", "greeter"), edsCluster("greeter", time.Second)
		s := newGRPC(t, listener, routes, cluster, assignment("greeter"))
		all := []proto.Message{listener, routes, cluster, assignment("greeter", s.a.port)}
		call := dialXDS(t, "late", s.Addr().Port)
		first := make(chan error, 1)
		go func() {
			// It waits: the client gives each resource 15 s to appear.
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			_, err := call(ctx)
			first <- err
		}()
		for i, typ := range []string{"LDS", "RDS", "CDS", "EDS"} {
			s.sees(0, 2*soon, "the client asks for "+typ, func(rs tap.Records) bool { return len(rs.Requests(typ)) > 0 })
			s.commit(key(all[i])+" comes", func(w world) { w.set(all[i]) })
		}
		eventually(t, soon, "calls succeed", call.gets(answer{"a", ""}))
		if err := <-first; err != nil {
			t.Errorf("the call that was made before anything was there: %v", err)
		}
	})

	t.Run("SOTW-5 SOTW-21 a bad cluster is refused once and reverted", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		l := loaded(t, s.call, nil)
		p := s.commit("greeter is bad", func(w world) { w.set(brokenCluster("greeter")) })
		rs := s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("CDS")) > 0 })
		s.nextChange(s.b)
		exactly(t, 1, "NACK", s.Since(p).NACKs())
		exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))

		p = s.commit("and as it was", func(w world) { w.set(edsCluster("greeter", time.Second)) })
		rs = append(rs.NACKs(), s.sees(p, soon, "an ACK", func(rs tap.Records) bool { return len(rs.ACKs("CDS")) == 1 }).Responses("CDS")...)
		if rs[0].Version != rs[1].Version {
			t.Errorf("after going back the version is not the one that the client states:\n%s", rs)
		}
		s.nextChange(s.a)
		exactly(t, 1, "CDS response", s.Since(p).Responses("CDS"))
		exactly(t, 0, "NACK", s.Since(p).NACKs())
		l.unharmed(t)
	})

	t.Run("SOTW-12 SOTW-15 killed and restarted, answered once", func(t *testing.T) {
		t.Parallel()
		s := startGRPC(t)
		l := loaded(t, s.call, nil)
		at := s.b
		for range 2 {
			s.kill()
			p := s.restart()
			types := []string{"LDS", "RDS", "CDS", "EDS"}
			s.sees(p, 30*time.Second, "the client asks for all types again", func(rs tap.Records) bool {
				return !slices.ContainsFunc(types, func(typ string) bool { return len(rs.Requests(typ)) == 0 })
			})
			s.nextChange(at)
			rs := s.Since(p)
			for _, typ := range types[:3] {
				exactly(t, 1, typ+" response", rs.Responses(typ))
			}
			// It asks in no particular order. An assignment that it had
			// before its cluster comes again behind that (WARM-2).
			cds := slices.IndexFunc(rs, func(r tap.Record) bool { return r.Kind == tap.Response && r.Type == "CDS" })
			exactly(t, 2, "EDS response behind CDS, one of them the next change,", rs[cds:].Responses("EDS"))
			if n := len(rs[:cds].Responses("EDS")); n > 1 {
				t.Errorf("%d EDS responses before CDS", n)
			}
			at = s.a
		}
		l.unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}
