package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/internal/testkit/dnstest"
	"github.com/chancery-xds/chancery/xds"
)

// An eds is a client that has subscribed to the endpoints of a cluster.
type eds struct {
	*runningServer
	stream grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	heard  []string // all responses
}

func (d *runningServer) endpointsOf(cluster string) *eds {
	d.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).DeltaAggregatedResources(d.ctx)
	if err == nil {
		err = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{cluster}})
	}
	if err != nil {
		d.Fatal(err)
	}
	return &eds{d, s, nil}
}

// gets receives changes until the endpoints are as wanted: addresses, with priority and weight if set. A
// change may come in up to three responses, since the command sends a change as
// several lines, and the server applies each line as it arrives.
func (e *eds) gets(want string) {
	e.Helper()
	for range 3 {
		e.heard = append(e.heard, e.next())
		if e.heard[len(e.heard)-1] == want {
			return
		}
	}
	e.Fatalf("the client gets %q, want %q", e.heard, want)
}

func (e *eds) next() string {
	e.Helper()
	r, err := e.stream.Recv()
	if err == nil {
		err = e.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
	}
	if err != nil {
		e.Fatal(err)
	}
	var got []string
	for _, one := range r.Resources {
		var a endpointv3.ClusterLoadAssignment
		if err := one.Resource.UnmarshalTo(&a); err != nil {
			e.Fatal(err)
		}
		for _, l := range a.Endpoints {
			for _, lb := range l.LbEndpoints {
				at := lb.GetEndpoint().GetAddress().GetSocketAddress()
				s := fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())
				if w := lb.GetLoadBalancingWeight().GetValue(); w > 0 {
					s += fmt.Sprintf("/%d/%d", l.Priority, w)
				}
				got = append(got, s)
			}
		}
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

// follows runs chancery endpoints follow.
func (d *runningServer) follows(args ...string) (kill func()) {
	d.Helper()
	cmd := exec.CommandContext(d.ctx, binary, append([]string{"endpoints", "follow", "--min-ttl", "30ms", "--max-ttl", "60ms", "--dns-timeout", "200ms"}, args...)...)
	log := &strings.Builder{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if d.Failed() {
			d.Log(log)
		}
	}
	d.Cleanup(stop)
	return stop
}

// A client gets the addresses of a DNS name. Another order or a failed look-up changes nothing. Empty
// answers count only after a while. A new follower removes addresses that have disappeared meanwhile, and
// no endpoints of others.
func TestFollowDNS(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	d := serve(t, []string{"--endpoints", "--admin-listen", socket, "--state-dir", t.TempDir()}, "a.yaml", cluster("a"))
	s := dnstest.Start(t)
	const a, host = dnsmessage.TypeA, "backend.test"
	s.SetAnswer(host, a, dnstest.Answer{Records: dnstest.Addresses("10.0.0.2", "10.0.0.1")})
	chancery(t, 0, "ok: 1 set", "endpoints", "put", "backend", "10.9.9.9:1", "--admin", socket)
	e := d.endpointsOf("backend")
	e.gets("10.9.9.9:1")
	follow := []string{"backend", "dns:" + host + ":80", "--admin", socket, "--dns-server", s.Addr, "--empty-after", "300ms"}
	kill := d.follows(follow...)
	e.gets("10.0.0.1:80 10.0.0.2:80 10.9.9.9:1")

	e.heard = nil
	asked := func(times int) {
		t.Helper()
		for want, until := s.Asked(host, a)+times, time.Now().Add(5*time.Second); s.Asked(host, a) < want; <-time.After(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("nobody asks")
			}
		}
	}
	s.SetAnswer(host, a, dnstest.Answer{Records: dnstest.Addresses("10.0.0.1", "10.0.0.2")})
	asked(2)
	s.SetAnswer(host, a, dnstest.Answer{RCode: dnsmessage.RCodeServerFailure})
	asked(2)
	s.SetAnswer(host, a, dnstest.Answer{Long: true, Records: dnstest.Addresses("10.0.0.2", "10.0.0.3")}) // whole over TCP only
	e.gets("10.0.0.2:80 10.0.0.3:80 10.9.9.9:1")
	for _, heard := range e.heard {
		if !strings.Contains(heard, "10.0.0.2:80") { // the failed look-up removed nothing: each response has 10.0.0.2
			t.Errorf("the client got %q", heard)
		}
	}
	s.SetAnswer(host, a, dnstest.Answer{RCode: dnsmessage.RCodeNameError})
	e.gets("10.9.9.9:1")
	s.SetAnswer(host, a, dnstest.Answer{Records: dnstest.Addresses("10.0.0.4", "10.0.0.5")})
	e.gets("10.0.0.4:80 10.0.0.5:80 10.9.9.9:1")

	kill()
	s.SetAnswer(host, a, dnstest.Answer{Records: dnstest.Addresses("10.0.0.5")})
	chancery(t, 0, "dns:backend.test:80/10.0.0.4:80", "endpoints", "ls", "backend", "--admin", socket)
	d.follows(follow...)
	e.gets("10.0.0.5:80 10.9.9.9:1")

	target := func(host string, port, priority, weight uint16) dnsmessage.ResourceBody {
		return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(host + "."), Port: port, Priority: priority, Weight: weight}
	}
	s.SetAnswer("t2.test", dnsmessage.TypeAAAA, dnstest.Answer{Records: dnstest.Addresses("2001:db8::2")})
	s.SetAnswer("_http._tcp.test", dnsmessage.TypeSRV, dnstest.Answer{Records: []dnsmessage.ResourceBody{target("t2.test", 82, 20, 7)}})
	e = d.endpointsOf("services")
	e.gets("") // it does not exist yet
	kill = d.follows("services", "srv:_http._tcp.test", "--ttl", "1s", "--admin", socket, "--dns-server", s.Addr)
	e.gets("2001:db8::2:82/0/7")
	s.SetAnswer("_http._tcp.test", dnsmessage.TypeSRV, dnstest.Answer{Records: []dnsmessage.ResourceBody{target("t2.test", 82, 20, 7), target(host, 81, 10, 5)}})
	e.gets("10.0.0.5:81/0/5 2001:db8::2:82/1/7")
	kill()
	e.gets("") // the lease ended
}

// The command rejects wrong arguments and files. The message for a wrong line has its file and number.
func TestEndpointsFollowRejectsWrongArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "names.txt", "# all\n# backend dns:b:80\n\nbackend b:80\n", "none.txt", "# none\n")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "follow needs CLUSTER", []string{"backend"}},
		{2, "write dns:HOST:PORT", []string{"backend", "dns:b"}},
		{2, "the name of a cluster has", []string{"", "dns:b:80"}},
		{2, "needs no other arguments", []string{"backend", "--file", "x"}},
		{1, "names.txt:4: ", []string{"--file", filepath.Join(dir, "names.txt")}},
		{1, "the file contains no names", []string{"--file", filepath.Join(dir, "none.txt")}},
		{1, "no such file", []string{"--file", filepath.Join(dir, "x")}},
		{2, "--ttl", []string{"backend", "dns:b:80", "--ttl", "1ms"}},
		{2, "write IP:PORT", []string{"backend", "dns:b:80", "--dns-server", "x"}},
		{2, "bounds of a TTL", []string{"backend", "dns:b:80", "--min-ttl", "1h"}},
	} {
		chancery(t, c.code, c.says, append([]string{"endpoints", "follow"}, c.args...)...)
	}
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	serve(t, []string{"--admin-listen", socket}, "a.yaml", cluster("a"))
	chancery(t, 3, "takes no endpoints", "endpoints", "follow", "b", "dns:b.test:80", "--admin", socket, "--dns-server", "127.0.0.1:9")
}
