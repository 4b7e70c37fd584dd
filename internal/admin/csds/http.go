package csds

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
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
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.StreamInterceptor(receiveInTurn))
	s.Register(g)
	described.RegisterServerReflectionServer(g, reflection.NewServerV1(reflection.ServerOptions{Services: services{g, s.o.OtherServices}, DescriptorResolver: envoy.Linked{Types: s.types}}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := &writer{ResponseWriter: w, c: http.NewResponseController(w), flushed: make(chan struct{}, 1)}
		_ = to.c.SetReadDeadline(time.Time{}) // a stream may be silent for long
		_ = to.c.SetWriteDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), writerKey{}, to), life)
		defer cancel()
		r = r.WithContext(ctx)
		to.requests = newRequests(r.Body)
		r.Body = to.requests
		g.ServeHTTP(to, r)
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

	requests *requests
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

// A requests is the body of a gRPC call. gRPC reads a body as fast as its bytes arrive, and each piece takes 16 KiB
// of memory. So this body returns one request when the service begins to receive one, and two more in advance (SAFE-14).
// Calls with one request need these: gRPC reads that request and the end after it without the interceptor.
type requests struct {
	io.ReadCloser
	asked  chan struct{} // has a value for each request that may be read
	closed chan struct{}
	left   []byte // the unread part of a request
}

func newRequests(body io.ReadCloser) *requests {
	r := &requests{ReadCloser: body, asked: make(chan struct{}, 3), closed: make(chan struct{})}
	r.asked <- struct{}{}
	r.asked <- struct{}{}
	return r
}

// receiveInTurn is an interceptor of gRPC that reads the requests of a call when the service receives them.
func receiveInTurn(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(service, receiver{stream})
}

type receiver struct{ grpc.ServerStream }

// RecvMsg implements [grpc.ServerStream].
func (r receiver) RecvMsg(m any) error {
	if w, ok := r.Context().Value(writerKey{}).(*writer); ok {
		select {
		case w.requests.asked <- struct{}{}:
		default: // there are requests in advance
		}
	}
	return r.ServerStream.RecvMsg(m)
}

// Read implements io.Reader.
func (r *requests) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		select {
		case <-r.asked:
		case <-r.closed:
			return 0, http.ErrBodyReadAfterClose
		}
		var err error
		r.left, err = ReadFrame(r.ReadCloser, maxRequest) // gRPC refuses a larger request by its header
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// FrameHeader is the length of the header of a gRPC frame: one byte for compression, and four for the length of the
// message.
const FrameHeader = 5

// ReadFrame reads a frame of a gRPC stream. If its message has more than most bytes, ReadFrame reads only the header.
func ReadFrame(in io.Reader, most uint32) ([]byte, error) {
	b := make([]byte, FrameHeader)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(b[1:])
	if size > most {
		return b, nil
	}
	b = append(b, make([]byte, size)...)
	_, err := io.ReadFull(in, b[FrameHeader:])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// Close implements io.Closer. gRPC calls it once.
func (r *requests) Close() error {
	close(r.closed)
	return r.ReadCloser.Close()
}
