package protocol

import (
	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// A Client is the client side of the protocol across streams. Subscriptions and resources survive a
// reconnect, nonces do not. Like [Session], a Client is pure: it performs no I/O and reads no clock.
// It is not safe for concurrent use; one goroutine owns it.
//
//	inputs   Subscribe, Unsubscribe, Connected, Disconnected, Receive, Advance, Adopt, Doubt
//	outputs  Requests, Events, Deadline
//	state    State, States, Types, Wants, Held, Found, Lookup, Version
//	end      Release
//
// Call Advance before the other inputs, and again at Deadline. After each input, drain Events. Before
// the next Receive, also drain Requests, which has the ACK or NACK of the last response.
// [client.Client] documents the methods.
type Client = client.Client

// NewClient returns a client without subscriptions and without a stream.
func NewClient(v xds.Variant, opts ClientOptions) *Client { return client.New(v, opts) }

// ClientOptions configures a client. The zero value is ready to use. [client.Options] has the details
// of each field:
//
//	Node         sent with the first request of each stream
//	Legacy       "*" alone is requested as an empty list of names, which every server understands
//	Check        returns the reason why a resource cannot be used; nil: all are accepted
//	Timeout      how long the server may take to send a requested name; zero: 15 s
//	Transient    a resource that did not arrive in time is unavailable, not missing
//	Retain       a resource that the server removes stays in use
//	DropOnError  a resource with a data error does not stay in use
//	Budget       limits the memory of the resources held; nil: no limit
type ClientOptions = client.Options

// A Budget limits the memory of the resources that one or more clients hold (SAFE-14): see its field
// Limit. All clients with the same Budget belong to one goroutine. The zero value has no limit.
type Budget = client.Budget

// A ClientEvent is a change of one name: of its resource or, if it has no resource, of the reason
// for that. Each change is reported once, in order, but only for names that are still subscribed.
// [client.Event] has the details of each field:
//
//	Kind, Type  what has changed, of which resource type
//	Name        the name of the resource; without a resource, the subscribed name
//	Asked       the subscribed names that find the resource
//	Resource    the resource in use after the change; Removed: the dropped resource
//	Err         the reason; nil for Updated, and if the server removed the resource
type ClientEvent = client.Event

// ClientEventKind is the kind of a [ClientEvent].
type ClientEventKind = client.EventKind

// The kinds of events. [client.EventKind] describes them in full.
const (
	Updated  ClientEventKind = client.Updated  // the resource is new, has changed, or is good again
	Removed  ClientEventKind = client.Removed  // the client dropped the resource, because the server removed it or its TTL expired
	Absent   ClientEventKind = client.Absent   // the name has no resource and had none before, or a refused resource is gone
	TimedOut ClientEventKind = client.TimedOut // the server sent nothing in time, which does not mean that the resource is missing
	Refused  ClientEventKind = client.Refused  // the client cannot use the resource that the server sent
	Errored  ClientEventKind = client.Errored  // the server reports an error of the resource, or a removal that the client ignores
)

// A ReportedError is an error that a server reports for a resource instead of sending it
// ("resource_errors").
type ReportedError = client.ReportedError

// The reasons in a [ClientEvent]. Test with [errors.Is].
var (
	ErrExpired = client.ErrExpired // the TTL of the resource expired
	ErrSilent  = client.ErrSilent  // the server did not send the resource in time
	ErrGone    = client.ErrGone    // the server removed the resource, but the client keeps using it
)

// A ClientState is the state of one name at a client. [client.State] has the details of each field:
//
//	Name, Status                the name and its state
//	Resource, Version, Updated  the resource in use, its version, and when it changed
//	Err, Refused, Failed        why the newest state is not in use, its version, and since when
type ClientState = client.State

// A ClientStatus is the state of a name, as in the client status discovery service (CSDS).
type ClientStatus = client.Status

// The states of a name at a client.
const (
	Requested     ClientStatus = client.Requested     // nothing was received
	DoesNotExist  ClientStatus = client.DoesNotExist  // the server reported that, or sent nothing in time
	Accepted      ClientStatus = client.Accepted      // ACKED: the newest state is in use, or the name finds other resources
	Rejected      ClientStatus = client.Rejected      // NACKED: the newest state is refused, or all resources that the name finds are refused
	ReceivedError ClientStatus = client.ReceivedError // RECEIVED_ERROR: the server reports an error
	Overdue       ClientStatus = client.Overdue       // TIMEOUT: nothing was received in time; with ClientOptions.Transient
)
