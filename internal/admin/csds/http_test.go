package csds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	metadata2 "google.golang.org/grpc/metadata"
	described "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// An at is the address of a server, with the client options for this address.
type at struct {
	target string
	creds  credentials.TransportCredentials
}

const (
	plain = "plain text"
	over  = "TLS"
	unix  = "a unix socket"
)

// serve serves HTTP/1 and HTTP/2 at one address, as the admin API does, with short timeouts.
func serve(t *testing.T, s *Service, how string) at {
	t.Helper()
	grpcs := s.GRPC()
	dump := s.ConfigDump()
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isGRPC := r.ProtoMajor == 2 && r.Header.Get("Content-Type") == "application/grpc"
		switch {
		case isGRPC && r.Header.Get("X-Refused") != "":
			http.Error(w, "no", http.StatusUnauthorized)
		case isGRPC:
			grpcs.ServeHTTP(w, r)
		default:
			dump.ServeHTTP(w, r)
		}
	}))
	h.Config.Protocols = &http.Protocols{}
	h.Config.Protocols.SetHTTP1(true)
	h.Config.Protocols.SetHTTP2(true)
	h.Config.Protocols.SetUnencryptedHTTP2(true)
	h.Config.ReadTimeout, h.Config.WriteTimeout, h.Config.IdleTimeout = time.Second/2, time.Second/2, time.Minute
	h.EnableHTTP2 = true
	t.Cleanup(h.Close)
	switch how {
	case over:
		h.StartTLS()
		pool := x509.NewCertPool()
		pool.AddCert(h.Certificate())
		return at{h.Listener.Addr().String(), credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS13})}
	case unix:
		path := filepath.Join(t.TempDir(), "s")
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		h.Listener.Close()
		h.Listener = l
		h.Start()
		return at{"unix://" + path, insecure.NewCredentials()}
	}
	h.Start()
	return at{h.Listener.Addr().String(), insecure.NewCredentials()}
}

func connect(t *testing.T, a at, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(a.target, append(opts, grpc.WithTransportCredentials(a.creds))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dial(t *testing.T, a at, opts ...grpc.DialOption) statusv3.ClientStatusDiscoveryServiceClient {
	t.Helper()
	return statusv3.NewClientStatusDiscoveryServiceClient(connect(t, a, opts...))
}

// HTTP and gRPC share one address of any kind. A stream outlives the timeouts of a request.
func TestGRPCBesideHTTP(t *testing.T) {
	for _, how := range []string{plain, over, unix} {
		t.Run(how, func(t *testing.T) {
			at := serve(t, service(edge(t, "one")), how)
			client := dial(t, at)
			got, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, &statusv3.ClientStatusResponse{Config: []*statusv3.ClientConfig{expected(t, "one")}})
			stream, err := client.StreamClientStatus(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if i > 0 {
					time.Sleep(time.Second) // a real connection and the timeouts of net/http need real time
				}
				if err := stream.Send(&statusv3.ClientStatusRequest{}); err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(i, err)
				}
			}
			if how != plain {
				return
			}
			response, err := http.Get("http://" + at.target + "/config_dump?node=one") //nolint:noctx // of a test
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatal(err, response)
			}
			response.Body.Close()
		})
	}
}

// If a handler refuses the request before the service gets it, the client sees the gRPC status for the
// HTTP error.
func TestHTTPErrorsOverGRPC(t *testing.T) {
	client := dial(t, serve(t, service(), plain), grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(metadataOf(ctx), method, req, reply, c, opts...)
	}))
	if _, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

// Tools such as grpcurl read the descriptors by reflection.
func TestReflection(t *testing.T) {
	stream, err := described.NewServerReflectionClient(connect(t, serve(t, New(Options{OtherServices: []string{"acme.Beside"}}), plain))).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *described.ServerReflectionRequest) *described.ServerReflectionResponse {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var services []string
	for _, s := range ask(&described.ServerReflectionRequest{MessageRequest: &described.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		services = append(services, s.Name)
	}
	if !slices.Contains(services, Name) || !slices.Contains(services, "acme.Beside") {
		t.Error(services)
	}
	for _, symbol := range []string{Name, "grpc.reflection.v1.ServerReflection"} {
		got := ask(&described.ServerReflectionRequest{MessageRequest: &described.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
		if len(got.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Error(symbol, got)
		}
	}
}

func metadataOf(ctx context.Context) context.Context {
	return metadata2.AppendToOutgoingContext(ctx, "x-refused", "1")
}

// A timed writer records its write deadlines.
type timed struct {
	*httptest.ResponseRecorder
	limited []bool
}

func (w *timed) SetWriteDeadline(t time.Time) error {
	w.limited = append(w.limited, !t.IsZero())
	return nil
}

// Each answer has its own write timeout, from its first byte to its last.
func TestWriteTimeoutPerAnswer(t *testing.T) {
	to := &timed{ResponseRecorder: httptest.NewRecorder()}
	w := &writer{ResponseWriter: to, c: http.NewResponseController(to), flushed: make(chan struct{}, 1)}
	for range 2 {
		for range 3 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
	}
	if want := []bool{true, false, true, false}; !slices.Equal(to.limited, want) {
		t.Errorf("%v, not %v", to.limited, want)
	}
}

// A frames is the body of a call: a number of empty requests.
type frames struct {
	left int
	read atomic.Int64
}

func (f *frames) Read(b []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	f.left--
	n := copy(b, make([]byte, 5))
	f.read.Add(1)
	return n, nil
}

func (f *frames) Close() error { return nil }

// While a call waits for its turn, its further requests stay with the caller.
func TestRequestsAreReadInTurn(t *testing.T) {
	t.Run("SAFE-14", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := New(Options{})
			for range maxTurns {
				s.turns <- struct{}{}
			}
			body := &frames{left: 1000}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+Name+"/StreamClientStatus", body)
			r.ProtoMajor, r.ProtoMinor = 2, 0
			r.Header.Set("Content-Type", "application/grpc")
			w := httptest.NewRecorder()
			ended := make(chan struct{})
			go func() {
				s.GRPC().ServeHTTP(w, r)
				close(ended)
			}()
			synctest.Wait()
			if n := body.read.Load(); n > 3 {
				t.Errorf("%d requests are read while the first one waits", n)
			}
			for range maxTurns {
				<-s.turns
			}
			<-ended
			if n := body.read.Load(); n != 1000 || w.Result().Trailer.Get("Grpc-Status") != "0" {
				t.Errorf("%d requests, %v", n, w.Result().Trailer)
			}
		})
	})
}
