package e2e

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	described "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/admin/api"
	endpointsv1 "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
)

// A real Envoy uses a registered endpoint instead of the endpoint in the file. It keeps the endpoint while the server
// is killed and restarted, drops it when its lease ends, and uses the file's endpoint after a release of the cluster.
// Other clusters do not change.
func TestRegisteredEndpoints(t *testing.T) {
	t.Parallel()
	each(t, "EDS-1 endpoints by the admin API", func(t *testing.T, v variant) {
		flags, _, admin := administered(t)
		s := siteOf(t, func(w world) *rig {
			return newRig(t, w, sourcedBy(v, renamed), append(flags, "--endpoints", "--state-dir", t.TempDir())...)
		})
		s.start(v)
		changed := func(r *api.EndpointsResult, err error) {
			t.Helper()
			if err != nil || r.Set+r.Removed != 1 {
				t.Fatal(r, err)
			}
		}
		changed(admin.PutEndpoint(t.Context(), "", "backend", "b", api.Endpoint{Address: "127.0.0.1", Port: s.b.port}))
		eventually(t, soon, "what is registered serves", s.ingress.gets(answer{"b", "1"}))
		s.daemon.kill()
		s.daemon.start()
		s.nextChange()
		if err := s.ingress.gets(answer{"b", "1"})(); err != nil {
			t.Error(err)
		}
		changed(admin.RemoveEndpoints(t.Context(), "", "backend", "b", false))
		eventually(t, soon, "nothing is registered", s.envoy.hasEndpoints("backend", 0))
		changed(admin.PutEndpoint(t.Context(), "", "backend", "b", api.Endpoint{Address: "127.0.0.1", Port: s.b.port, TTL: "2s"}))
		eventually(t, soon, "what has a lease serves", s.ingress.gets(answer{"b", "1"}))
		eventually(t, soon, "the lease ends", s.envoy.hasEndpoints("backend", 0))
		eventually(t, soon, "no endpoint serves", s.ingress.fails("503"))
		if _, err := admin.RemoveEndpoints(t.Context(), "", "backend", "", true); err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, "what the file says serves", s.ingress.gets(answer{"a", "1"}))
	})
}

// A program in Python registers over gRPC, by a unix socket; what is wrong with a step is told, and the rest of its request is done. When
// it leaves, what it has put stays for the time of its lease.
func TestRegisteredByPython(t *testing.T) {
	t.Parallel()
	harness.Needs(t, python.needs)
	flags, at, admin := administered(t)
	newDaemon(t, newWorld(), renamed, append(flags, "--endpoints")...)
	reflects(t, strings.Replace(at, "unix://", "unix:", 1), endpointsv1.Endpoints_ServiceDesc.ServiceName)
	cmd := exec.Command("python3", "clients/python/register.py", strings.Replace(at, "unix://", "unix:", 1))
	cmd.Env = append(os.Environ(), python.env)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	says := func(request *endpointsv1.RegisterRequest) *endpointsv1.RegisterResponse {
		t.Helper()
		b, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(in, "%x\n", b); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatal("it has ended")
		}
		response := &endpointsv1.RegisterResponse{}
		if b, err = hex.DecodeString(lines.Text()); err != nil || proto.Unmarshal(b, response) != nil {
			t.Fatal(lines.Text())
		}
		return response
	}
	put := func(port uint32) *endpointsv1.Step {
		return &endpointsv1.Step{Cluster: "backend", Change: &endpointsv1.Step_Put{Put: &endpointsv1.Endpoint{Address: "127.0.0.1", Port: port}}}
	}
	r := says(&endpointsv1.RegisterRequest{Ttl: durationpb.New(2 * time.Second), Steps: []*endpointsv1.Step{put(8080), put(0)}})
	if r.Done != 1 || len(r.Refused) != 1 || r.Refused[0].GetStep() != 1 || r.Refused[0].Field != "port" {
		t.Error(r)
	}
	if r = says(&endpointsv1.RegisterRequest{}); r.Done != 2 || len(r.Refused) != 0 || r.Lost {
		t.Error(r)
	}
	registered := func(n int) func() error {
		return func() error {
			l, err := admin.Endpoints(t.Context(), "", "backend")
			if err == nil && l.Items[0].Total != n {
				err = fmt.Errorf("%d are registered, not %d", l.Items[0].Total, n)
			}
			return err
		}
	}
	if err := registered(1)(); err != nil {
		t.Error(err)
	}
	in.Close()
	if !lines.Scan() || lines.Text() != "OK " {
		t.Errorf("it ended with %q", lines.Text())
	}
	if err := registered(1)(); err != nil {
		t.Error(err)
	}
	eventually(t, soon, "the lease ends", registered(0))
}

// reflects checks that reflection at an address has a service, and its messages.
func reflects(t *testing.T, at, service string) {
	t.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := described.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*described.ServerReflectionRequest{
		{MessageRequest: &described.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &described.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}},
	} {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil || !strings.Contains(got.String(), service) && len(got.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Error(got, err)
		}
	}
}
