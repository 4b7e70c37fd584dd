// Package protocol implements the xDS transport protocol as two pure state machines: [Session]
// is the server side of one stream, [Client] is the client side across streams. The package
// starts no goroutine, takes no lock, reads no clock and performs no I/O. The two halves share only
// the types of package xds. internal/client has the client; the rest of this text describes the session.
//
// Inputs are [Session.Receive] (a request), [Session.Change] (a new view, with the names that may
// differ) and [Session.Advance] (the time). After each input, drain [Session.Responses],
// [Session.Events] and [Session.Interests], and call Advance again at [Session.Deadline]. The
// view is the immutable set of resources that this client may see ([xds.View]). A response is the
// difference between the view and the states that the client was told.
//
// docs/one-name.md follows one name through a session, with the records behind each of its states.
// To begin, read that page and a transcript in testdata.
//
// # Rooms
//
// A subscription is one type on one stream. Each part of it belongs to a room: a package, or a group
// of files. A room uses only the rooms before it, and only a room writes its fields (internal/arch):
//
//	internal/delay   the reasons why anything waits or is kept, with their time limits
//	internal/names   one row for each name, kept names, and the lists of touched names
//	internal/sent    the contents of responses
//	sent             told.go answer.go delivery.go settle.go refusal.go withheld.go
//	                 refusing.go retry.go world.go blamed.go permanent.go
//	interest         want.go match.go scope.go
//	order            withdraw.go order.go inside.go waiting.go warm.go due.go mute.go
//	respond          diff.go say.go resend.go tell.go response.go handover.go beat.go forget.go
//
// The session has the loop (session.go). Receive and Change touch names. Responses prepares each type,
// sends news in push order, and then removals in reverse. It hands on what a room reports: touched
// names, late answers, dropped responses. resume.go and state.go read all rooms.
//
//	which names a request means    replace, subscribe, unsubscribe (want.go); match (match.go)
//	the effect of an answer        pairAnswer, accept, refuse; endRefusing
//	when nothing may be sent       blocked (due.go)
//	the content to send            owed (due.go) for a name, respond (say.go) for a type
//	what counts as held            held, keeps (told.go)
//	which removals wait, how long  keep and holdOf (withdraw.go)
//	which news wait, how long      mustWait and mayLack (order.go), waitForAddresses (diff.go)
//	why it waits, how long at most internal/delay; within (order.go), ends (withdraw.go)
//	which streams are one client   Siblings.joined, ordersTypes (siblings.go)
//	the order inside a response    binders (handover.go), xds.Changes.HandOver
//	when a wait is evaluated again inputs (waiting.go)
//	what ends without an answer    blockedBy, waitEnds, withdrawBy, mutedBy, beatBy
//	what a client held before      recall (SotW), resume (delta)
//
// # Words
//
//	subscribed   the client sent the name in a request (Entry.Named)
//	wanted       subscribed, matched, or in a scope; under a wildcard every name (covers)
//	matched      the resource has a wanted alias, or is in a wanted collection
//	scope        a collection that stands for a wildcard under one resource of the parent type
//	on demand    a resource of the view that a wildcard does not cover
//	absent       a told state: the name does not exist, or nothing was sent for it yet
//	others       a told state: the name matches other resources, which are sent instead
//	base         the table that the wildcard subscription was told
//	cargo        the content of a response, with the states that were told before
//	full state   a SotW response of listeners or clusters: what it lacks is removed. In code: world
//	dirty        the name may have to be sent
//	again        the name is to be sent, changed or not
//	lost         the client was told the resource, and the view does not have it any more
//	leaving      lost, but kept on the client. In code also: kept, lingering
//	released     leaving, but nothing refers to it any more: the removal is sent
//	lapsed       held by the client without a wanted name that matches, not by an unsubscription
//	dropped      unsubscribed; under a wildcard the state must still be told (DELTA-6)
//	muted        the absence of the name is not reported yet
//	unfed        the name gets no heartbeats
//	vague        the client holds resources of an earlier stream with unknown content
//	silent       the client has not answered a type for 15 s
//	parked       the name waits and is not evaluated until a noted name or a condition ends that
//	stamp        name, version, hash and references of a resource, without its body (xds.Stamp)
package protocol
