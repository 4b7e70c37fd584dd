package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// failed returns an error of the client as one of a key. ctx is that of the caller.
func failed(ctx context.Context, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", key, context.Cause(ctx))
	}
	kind := kind(err)
	if kind == revisions.ErrUnavailable { //nolint:errorlint // it is just that
		return &silentError{key, err}
	}
	if kind != nil {
		return fmt.Errorf("%s: %w: %w", key, kind, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// A silentError is that of an etcd that does not answer. It says so in plain words: what gRPC says of it is of no use to people.
type silentError struct {
	key string
	error
}

func (e *silentError) Error() string {
	why := e.error.Error()
	if s, ok := status.FromError(e.error); ok {
		why = s.Message()
	}
	return fmt.Sprintf("%s: the etcd does not answer (%s)", e.key, why)
}

func (e *silentError) Unwrap() []error { return []error{revisions.ErrUnavailable, e.error} }

// kind returns which error of package revisions an error is; nil: none, or it is one already.
func kind(err error) error {
	code, text := status.Code(err), err.Error()
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = e.Code()
	}
	is := func(err rpctypes.EtcdError) bool { return strings.HasSuffix(text, err.Error()) }
	switch {
	case is(errOf(rpctypes.ErrNoSpace)):
		return revisions.ErrFull
	case is(errOf(rpctypes.ErrRequestTooLarge)), code == codes.ResourceExhausted && strings.Contains(text, "larger than max"):
		return revisions.ErrTooLarge
	case code == codes.PermissionDenied, code == codes.Unauthenticated, is(errOf(rpctypes.ErrUserEmpty)), is(errOf(rpctypes.ErrAuthFailed)),
		is(errOf(rpctypes.ErrAuthNotEnabled)), is(errOf(rpctypes.ErrInvalidAuthToken)):
		return revisions.ErrDenied
	case code == codes.Unavailable, code == codes.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return revisions.ErrUnavailable
	}
	return nil
}

func errOf(err error) rpctypes.EtcdError {
	e, _ := errors.AsType[rpctypes.EtcdError](err)
	return e
}
