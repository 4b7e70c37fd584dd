package api

import "context"

// CallerHeader is the header with which a server of a store states the caller on whose behalf it sends a request, and
// the caller's roles.
const CallerHeader = "Chancery-Caller"

// RoleField is the field of the error for a caller that lacks a role.
const RoleField = "role"

type callerKey struct{}

// WithCaller returns a context whose requests to other servers of the store have the value of the header
// [CallerHeader].
func WithCaller(ctx context.Context, value string) context.Context {
	return context.WithValue(ctx, callerKey{}, value)
}

// StatedCaller returns the value of [CallerHeader] for requests with this context; "": none.
func StatedCaller(ctx context.Context) string {
	value, _ := ctx.Value(callerKey{}).(string)
	return value
}
