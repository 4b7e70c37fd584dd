package csds

import (
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	described "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/internal/envoyapi"
)

const (
	maxRequest = 64 << 10         // bytes of a request of gRPC
	writeTime  = 30 * time.Second // for a client to take an answer
	life       = time.Hour        // of a call
)

// IsGRPC reports whether a request is one of gRPC. No web page can send one to another server
// unasked: its content type is none that a page may set.
func IsGRPC(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return r.ProtoMajor == 2 && r.Method == http.MethodPost &&
		(kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") || strings.HasPrefix(kind, "application/grpc;"))
}

// GRPC returns a handler of requests of gRPC ([IsGRPC]), on a server that speaks HTTP/2: it serves
// the service, and reflection, which tells tools such as grpcurl its messages. Who may ask is for
// its caller to decide.
func (s *Service) GRPC() http.Handler {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	s.Register(g)
	described.RegisterServerReflectionServer(g, reflection.NewServerV1(reflection.ServerOptions{Services: g, DescriptorResolver: descriptors{s.types}}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Time{}) // a stream may be quiet
		_ = c.SetWriteDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), controller{}, c), life)
		defer cancel()
		g.ServeHTTP(w, r.WithContext(ctx))
	})
}

// A controller is the key of that of a request.
type controller struct{}

// sending gives the client of a call some time to take an answer, until the function is called.
func sending(ctx context.Context) (sent func()) {
	c, ok := ctx.Value(controller{}).(*http.ResponseController)
	if !ok {
		return func() {}
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTime))
	return func() { _ = c.SetWriteDeadline(time.Time{}) }
}

// descriptors has what reflection tells: those that the program links, of reflection itself, and
// Envoy's.
type descriptors struct{ types *envoyapi.Types }

func (d descriptors) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := d.types.FindFileByPath(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

func (d descriptors) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if f, err := d.types.FindDescriptorByName(name); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
