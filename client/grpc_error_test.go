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
			if got := explain(status.New(code, says), "Method", 1); len(got) > 600 || !strings.HasSuffix(got, "é…") {
				t.Errorf("%s: %d bytes", code, len(got))
			}
		}
	}
}
