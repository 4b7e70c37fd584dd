package etcdkv

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

// A keyError is an error that names its key.
type keyError struct{ error }

func (e *keyError) Unwrap() error { return e.error }

// failed turns an error of the client into an error of a key. The argument ctx is the context of the
// caller.
func failed(ctx context.Context, key string, err error) error {
	if err == nil {
		return nil
	}
	if _, named := errors.AsType[*keyError](err); named {
		return err
	}
	kind := kind(err)
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", key, context.Cause(ctx))
	case kind == revisions.ErrUnavailable: //nolint:errorlint // kind returns it unwrapped
		err = &silentError{key, err}
	case kind != nil:
		err = fmt.Errorf("%s: %w: %w", key, kind, err)
	default:
		err = fmt.Errorf("%s: %w", key, err)
	}
	return &keyError{err}
}

// A silentError is the error of an etcd that does not answer. Its text is for people, without the words of gRPC.
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

// kind returns the error of package revisions for an etcd error. It returns nil if there is none, or
// if err already wraps one.
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
