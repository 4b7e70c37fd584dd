package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	endpointsv1 "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
)

// protocols returns the HTTP protocols of a listener. gRPC needs HTTP/2; without TLS it uses HTTP/2 with
// prior knowledge (h2c).
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// isGRPC reports whether a request is a gRPC request. A web page cannot send a request with this content
// type to another server without the permission of that server.
func isGRPC(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return r.ProtoMajor == 2 && r.Method == http.MethodPost &&
		(kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") || strings.HasPrefix(kind, "application/grpc;"))
}

const registerMethod = endpointsv1.Endpoints_Register_FullMethodName

// either returns a handler that routes gRPC requests to s, and all other requests to other.
func (s *Server) either(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			other.ServeHTTP(w, r)
			return
		}
		if err := s.allowed(r.Context(), needOfCall(r)); err != nil {
			end(w, err)
			return
		}
		switch {
		case r.URL.Path == registerMethod:
			s.register(w, r)
		case s.GRPC != nil:
			s.GRPC.ServeHTTP(w, r)
		default:
			other.ServeHTTP(w, r)
		}
	})
}

// deny refuses a request. A gRPC client ignores the body of an HTTP answer, so it gets a gRPC status.
func deny(w http.ResponseWriter, r *http.Request, p *problem) {
	if isGRPC(r) {
		end(w, p)
		return
	}
	if r.ProtoMajor == 1 && r.ContentLength < 0 {
		_ = http.NewResponseController(w).EnableFullDuplex() // otherwise the answer would wait for the end of the body, and the body of a stream does not end
		w.Header().Set("Connection", "close")
	}
	refuse(w, p)
}

// codeOf returns the gRPC code for an HTTP status.
func codeOf(code int) codes.Code {
	switch code {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound, http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.Unknown
}

// end ends a gRPC call, before or after its first answer.
func end(w http.ResponseWriter, err error) {
	code, message := ended(err)
	h := w.Header()
	prefix := http.TrailerPrefix
	if h.Get("Content-Type") == "" { // before the first answer
		h.Set("Content-Type", "application/grpc")
		prefix = ""
	}
	h.Set(prefix+"Grpc-Status", strconv.Itoa(int(code)))
	if message != "" {
		h.Set(prefix+"Grpc-Message", percent(message))
	}
}

// percent encodes a text for the gRPC header grpc-message.
func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
