package csds

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	described "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/chancery-xds/chancery/internal/envoy"
)

const (
	maxRequest = 64 << 10         // bytes of a request of gRPC
	writeTime  = 30 * time.Second // for a client to take an answer
	life       = time.Hour        // of a call
)

// GRPC returns a handler of requests of gRPC, on a server that speaks HTTP/2: it serves the
// service, and reflection, which tells tools such as grpcurl its messages. Who may ask is for
// its caller to decide.
func (s *Service) GRPC() http.Handler {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	s.Register(g)
	described.RegisterServerReflectionServer(g, reflection.NewServerV1(reflection.ServerOptions{Services: services{g, s.o.Beside}, DescriptorResolver: envoy.Linked{Types: s.types}}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := &writer{ResponseWriter: w, c: http.NewResponseController(w), flushed: make(chan struct{}, 1)}
		_ = to.c.SetReadDeadline(time.Time{}) // a stream may be quiet
		_ = to.c.SetWriteDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), writerKey{}, to), life)
		defer cancel()
		g.ServeHTTP(to, r.WithContext(ctx))
	})
}

// services are those of a server, and others.
type services struct {
	reflection.ServiceInfoProvider
	beside []string
}

// GetServiceInfo implements [reflection.ServiceInfoProvider].
func (t services) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := t.ServiceInfoProvider.GetServiceInfo()
	for _, name := range t.beside {
		all[name] = grpc.ServiceInfo{}
	}
	return all
}

// A writer gives the client of a call some time to take each answer. gRPC writes and flushes an
// answer by the goroutine that serves the request: after that nobody may write.
type writer struct {
	http.ResponseWriter
	c       *http.ResponseController
	writing bool
	flushed chan struct{} // with one slot
}

type writerKey struct{}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (int, error) {
	if !w.writing {
		w.writing = true
		_ = w.c.SetWriteDeadline(time.Now().Add(writeTime))
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	_ = w.c.Flush()
	w.writing = false
	_ = w.c.SetWriteDeadline(time.Time{})
	select {
	case w.flushed <- struct{}{}:
	default:
	}
}

// sending returns a function that waits until what was sent since is written. gRPC itself only
// takes it over.
func sending(ctx context.Context) (written func()) {
	w, ok := ctx.Value(writerKey{}).(*writer)
	if !ok {
		return func() {}
	}
	select {
	case <-w.flushed:
	default:
	}
	return func() {
		select {
		case <-w.flushed:
		case <-ctx.Done():
		}
	}
}
