package etcdkv

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// The error of an etcd that does not answer has a plain text, and wraps revisions.ErrUnavailable.
func TestErrorOfSilentEtcd(t *testing.T) {
	for _, err := range []error{status.Error(codes.Unavailable, "context deadline exceeded"), context.DeadlineExceeded} {
		err := failed(t.Context(), "prod/head", err)
		if want := "prod/head: the etcd does not answer (context deadline exceeded)"; !errors.Is(err, revisions.ErrUnavailable) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
