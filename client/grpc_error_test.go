package client

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server's message is cut at 500 bytes: it may have 700 KB, and it is in each event and log line.
func TestGRPCLongStatusIsCut(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for _, code := range []codes.Code{codes.Unavailable, codes.PermissionDenied, codes.Unimplemented} {
		for _, says := range []string{long, "connection refused" + long, long + "connection refused"} {
			if got := explain(status.New(code, says), "Method", false); len(got) > 600 || !strings.HasSuffix(got, "é…") {
				t.Errorf("%s: %d bytes", code, len(got))
			}
		}
	}
}

// The hint of another protocol is only for a server that has never answered.
func TestGRPCHintOnlyBeforeFirstAnswer(t *testing.T) {
	st := status.New(codes.Unavailable, "error reading server preface: EOF")
	for answered, want := range map[bool]string{
		false: "the server ended the connection at once; it may require TLS, or not speak gRPC: error reading server preface: EOF",
		true:  "the server ended the connection at once: error reading server preface: EOF",
	} {
		if got := explain(st, "Method", answered); got != want {
			t.Errorf("answered %v: %q", answered, got)
		}
	}
}
