package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ofGRPC returns the gRPC status of a call to a server.
func ofGRPC(t *testing.T, s *Server, network, address string) (call func(opts ...string) error) {
	t.Helper()
	g := grpc.NewServer()
	healthgrpc.RegisterHealthServer(g, health.NewServer())
	s.GRPC = g
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	target := l.Addr().String()
	if network == "unix" {
		target = "unix://" + target
	}
	return func(opts ...string) error {
		headers := metadata.MD{}
		dial := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		for _, o := range opts {
			key, value, _ := strings.Cut(o, "=")
			if key == "host" {
				dial = append(dial, grpc.WithAuthority(value))
				continue
			}
			headers.Set(key, value)
		}
		c, err := grpc.NewClient(target, dial...)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = healthgrpc.NewHealthClient(c).Check(metadata.NewOutgoingContext(t.Context(), headers), &healthgrpc.HealthCheckRequest{})
		return err
	}
}

// The same access rules apply to gRPC, which gets a gRPC status.
func TestGRPCPassesTheGate(t *testing.T) {
	want := func(t *testing.T, err error, code codes.Code, text string) {
		t.Helper()
		if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v %q", err, code, text)
		}
	}
	t.Run("loopback", func(t *testing.T) {
		call := ofGRPC(t, &Server{}, "tcp", "127.0.0.1:0")
		want(t, call(), codes.OK, "")
		want(t, call("host=localhost:18001"), codes.OK, "")
		want(t, call("host=evil.example"), codes.PermissionDenied, "for localhost only")
		want(t, call("origin=http://evil.example"), codes.PermissionDenied, "web pages")
	})
	t.Run("token", func(t *testing.T) {
		call := ofGRPC(t, &Server{Token: func() (string, error) { return "sesame-sesame-sesame", nil }}, "tcp", "127.0.0.1:0")
		want(t, call(), codes.Unauthenticated, "bearer token")
		want(t, call("authorization=Bearer sesame"), codes.Unauthenticated, "bearer token")
		want(t, call("authorization=Bearer sesame-sesame-sesame"), codes.OK, "")
	})
	t.Run("unix", func(t *testing.T) {
		call := ofGRPC(t, &Server{Token: func() (string, error) { return "", errors.New("no file") }}, "unix", filepath.Join(t.TempDir(), "s"))
		want(t, call(), codes.OK, "")
		want(t, call("host=evil.example"), codes.OK, "")
	})
}

// An endless stream ends with the server.
func TestGRPCEndsWithServer(t *testing.T) {
	g := grpc.NewServer()
	healthgrpc.RegisterHealthServer(g, health.NewServer())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Server{GRPC: g}).Serve(ctx, l) }()
	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stream, err := healthgrpc.NewHealthClient(c).Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cancel()
	if err := <-ended; err != nil || time.Since(begin) > 2*grace {
		t.Error(err, time.Since(begin))
	}
	t.Log(time.Since(begin))
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream does not end")
	}
}

func TestNoGRPC(t *testing.T) {
	h := (&Server{}).Handler(loopback)
	r := httptest.NewRequest(http.MethodPost, "/grpc.health.v1.Health/Check", nil)
	r.Host, r.ProtoMajor = "localhost", 2
	r.Header.Set("Content-Type", "application/grpc")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusNotFound {
		t.Error(w.Code, w.Body)
	}
}

func TestIsGRPC(t *testing.T) {
	for kind, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc;x": true, "application/grpc-web": false, "application/grpcx": false, "": false, "application/json": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/x", nil)
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", kind)
		if isGRPC(r) != want {
			t.Error(kind)
		}
		r.ProtoMajor = 1
		if isGRPC(r) {
			t.Error("HTTP/1:", kind)
		}
	}
}
