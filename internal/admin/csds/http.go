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
	maxRequest = 64 << 10         // maximum bytes of a gRPC request
	writeTime  = 30 * time.Second // time for the caller to read an answer
	life       = time.Hour        // maximum duration of a call
)

// GRPC returns a handler for gRPC requests on an HTTP/2 server. It serves CSDS, and reflection for tools
// such as grpcurl. The caller of GRPC must check permissions.
func (s *Service) GRPC() http.Handler {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	s.Register(g)
	described.RegisterServerReflectionServer(g, reflection.NewServerV1(reflection.ServerOptions{Services: services{g, s.o.OtherServices}, DescriptorResolver: envoy.Linked{Types: s.types}}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := &writer{ResponseWriter: w, c: http.NewResponseController(w), flushed: make(chan struct{}, 1)}
		_ = to.c.SetReadDeadline(time.Time{}) // a stream may be silent for long
		_ = to.c.SetWriteDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), writerKey{}, to), life)
		defer cancel()
		g.ServeHTTP(to, r.WithContext(ctx))
	})
}

// services lists the services of a gRPC server and further services, for reflection.
type services struct {
	reflection.ServiceInfoProvider
	others []string
}

// GetServiceInfo implements [reflection.ServiceInfoProvider].
func (t services) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := t.ServiceInfoProvider.GetServiceInfo()
	for _, name := range t.others {
		all[name] = grpc.ServiceInfo{}
	}
	return all
}

// A writer limits the time in which the caller must read each answer. gRPC writes and flushes an
// answer on the goroutine that serves the request; after the handler has returned, nothing may write.
type writer struct {
	http.ResponseWriter
	c       *http.ResponseController
	writing bool
	flushed chan struct{} // has one slot
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

// sending returns a function that waits until the next answer after the call of sending is written.
// gRPC's SendMsg only queues an answer.
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
