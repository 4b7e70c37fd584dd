package protocol

import (
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Options configures a session. The zero value is ready to use.
type Options struct {
	// MaxTypes limits the resource types on one stream; 64 if zero.
	MaxTypes int

	// MaxNames limits the names of one type that a stream subscribes to; 100,000 if zero.
	MaxNames int

	// MaxNameLen limits the length of a resource name in bytes; 4,096 if zero.
	MaxNameLen int

	// MaxResponse is the size in bytes above which a response is split; 3 MiB if zero. A SotW
	// response with the full state is never split.
	MaxResponse int

	// Refused reports whether this node refused a response of the type on an earlier stream and has
	// accepted none since (SOTW-18). Nil: no such refusal.
	Refused func(*xds.Type) bool

	// Withholds reports whether the view withholds a resource of the type that the client has
	// refused: the view has an older resource or none in its place. So the refusal continues when
	// the client accepts such a view. Nil: the view withholds nothing.
	Withholds func(*xds.Type) bool

	// Tried returns the name of the resource of a type that the view withheld and now shows again, in the
	// version that the client has refused (HEAL-2). A NACK of it is a repeated one. Nil: no such resource.
	Tried func(*xds.Type) (name string, ok bool)

	// Hasten is called when the client has accepted a message. It may call helps for each resource that the
	// view withholds: helps reports whether the message is a reason to show the refused version now (HEAL-2).
	// The message has a new version of a resource to which the refused one refers, or releases an address
	// that the refused one takes. The function counts selects the resources of the message, by name and
	// version. The function helps is valid during the call. Nil: there is no such resource.
	Hasten func(helps Helps)

	// Told returns the resources that this client may hold of a type when it states a version
	// (SotW). The version was sent on any stream: the result is the World of the Sent event with
	// this version. If several responses had the version, the client may have accepted any of them,
	// so the result covers all of them. It also covers all later responses, because the client may
	// have applied a part of them before it answered.
	//
	// If no response is recorded, Told returns its last argument: the content of the table with
	// that version, or nil if there is no such table. Without Told, nothing is recorded.
	Told func(t *xds.Type, version string, table *World) *World

	// Recent returns the recent tables of a type in this view, the newest first. The session
	// searches these tables for the content of versions that clients state, and for the bodies of
	// resources that changed or vanished between two streams. Nil: no recent tables.
	Recent func(*xds.Type) []*xds.Table

	// Grace is how long a per-type stream keeps a removed resource, because resources of other
	// types may refer to it that are not on a stream of its [Siblings]. On a resumed aggregated stream, types that the client has not opened
	// yet may refer to anything for this time. 5 s if zero, none if negative.
	Grace time.Duration

	// Retry reports whether the server permits that refused content of a type is sent again now, in a
	// response of about this size (HEAL-2). If not, the session asks again later. Nil: refused content is
	// not sent again until it changes.
	Retry func(t *xds.Type, bytes int) bool

	// ForceTTL sends TTLs also to delta clients that do not announce support for them (TTL-6).
	ForceTTL bool

	// Bodyless reports a missing name to delta clients as a Resource without a body instead of in
	// removed_resources (DELTA-7).
	Bodyless bool

	// ResourceErrors reports missing names also in resource_errors (gRFC A88).
	ResourceErrors bool

	// Spread is any number that differs between streams. It spreads their heartbeats over time
	// (TTL-3).
	Spread uint64
}

// Helps reports whether a message is a reason to send a refused version of a type again: see [Options.Hasten].
type Helps func(t *xds.Type, refused *xds.Stamp, counts func(name string, is *xds.Stamp) bool) bool
