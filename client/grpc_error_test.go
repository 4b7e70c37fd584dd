package client

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a server says is told in 500 bytes: it may be 700 KB, in each event and line of a log.
func TestGRPCSays(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for _, code := range []codes.Code{codes.Unavailable, codes.PermissionDenied, codes.Unimplemented} {
		for _, says := range []string{long, "connection refused" + long, long + "connection refused"} {
			if got := explain(status.New(code, says), "Method", 1, false); len(got) > 600 || !strings.HasSuffix(got, "é…") {
				t.Errorf("%s: %d bytes", code, len(got))
			}
		}
	}
}

// A server that has answered before is not suspected of another protocol when it dies.
func TestGRPCDies(t *testing.T) {
	st := status.New(codes.Unavailable, "error reading server preface: EOF")
	for answered, want := range map[bool]string{
		false: "the server ended the connection at once; it may want TLS, or not speak gRPC: error reading server preface: EOF",
		true:  "the server ended the connection at once: error reading server preface: EOF",
	} {
		if got := explain(st, "Method", 1, answered); got != want {
			t.Errorf("answered %v: %q", answered, got)
		}
	}
}
