package server

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
)

var errDraining = status.Error(codes.Unavailable, "the server is shutting down")

// rejected is what the client of a request that cannot be served is told.
func rejected(err error) error {
	if errors.Is(err, protocol.ErrLimit) || errors.Is(err, wire.ErrLimit) {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return status.Error(codes.InvalidArgument, err.Error())
}
