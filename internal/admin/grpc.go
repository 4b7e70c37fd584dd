package admin

import (
	"net/http"
	"strconv"
	"strings"
)

// protocols are what an address takes: gRPC needs HTTP/2, which it begins without TLS in plain
// text (h2c, with prior knowledge).
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// isGRPC reports whether a request is one of gRPC. No web page can send one to another server
// unasked: its content type is none that a page may set.
func isGRPC(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return r.ProtoMajor == 2 && r.Method == http.MethodPost &&
		(kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") || strings.HasPrefix(kind, "application/grpc;"))
}

// either returns a handler of requests of gRPC, and of all others.
func (s *Server) either(other http.Handler) http.Handler {
	if s.GRPC == nil {
		return other
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isGRPC(r) {
			s.GRPC.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// deny refuses a request in the way of who asks: a client of gRPC shows no body of HTTP.
func deny(w http.ResponseWriter, r *http.Request, p *problem) {
	if !isGRPC(r) {
		refuse(w, p)
		return
	}
	const permissionDenied, unauthenticated = 7, 16
	code := permissionDenied
	if p.code == http.StatusUnauthorized {
		code = unauthenticated
	}
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(code))
	h.Set("Grpc-Message", p.message) // of the program itself: ASCII, without percent signs
	w.WriteHeader(http.StatusOK)
}
