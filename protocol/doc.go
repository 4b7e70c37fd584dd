// Package protocol implements the xDS transport protocol as two pure state machines: [Session]
// is the server side of one stream, [Client] is the client side across streams. The package
// starts no goroutine, takes no lock, reads no clock and performs no I/O. The two halves share only
// the types of package xds. The client is in package internal/client, whose doc.go describes it; the
// rest of this text describes the session.
//
// # Inputs and outputs of a session
//
// Inputs are [Session.Receive] (a request), [Session.Change] (a new view, with the names that may
// differ) and [Session.Advance] (the time). After each input, drain [Session.Responses],
// [Session.Events] and [Session.Interests], and call Advance again at [Session.Deadline]. The
// view is the immutable set of resources that this client may see ([xds.View]). An idle stream
// releases it ([Session.Release]). No change needs to wake a stream before [Session.Waits].
//
// A response is the difference between the view and the states that the client was told. SotW and
// delta differ in few places: search for xds.SotW.
//
// # Told, and may hold
//
// A resource counts as told when it is sent, for a stream loses nothing and keeps its order
// (docs/adr/0002). Four records list the names for which the client may hold another state:
//
//	delivery    an unanswered response: the client may also hold the state before it.
//	            It consists of parts, one for each message. A part is
//	              unanswered  the client holds the old or the new state
//	              accepted    the client holds the new state
//	              refused     the part has become a refusal
//	              passed      SotW: the ACK of a later response answers this part, too
//	            A delivery is forgotten when all its parts are answered. At most 4 are in
//	            flight, further ones wait for an answer, at most 5 s. A delivery may be
//	              superseded  a later one was accepted: nothing waits for this one
//	              stuck       a cluster in it has no assignment: no ACK is expected
//	              waited      it waited in vain: with 64 of these the stream ends (SAFE-1)
//	refusal     the content of a NACKed message: the client may have applied all, some or none.
//	              held back   none of its names is sent while all are unchanged (DELTA-15)
//	              retold      a name has changed, so all of them are sent again
//	              apart       a withheld name: held back alone, while the others are sent again (HEAL-1)
//	            A name leaves the refusal when the client accepts it anew or unsubscribes. In
//	            full state the ACK of a later response ends the refusal. Of more than 16
//	            refusals, two neighbours are merged.
//	leftover    the client still holds the resource, although no wanted name matches it any more, or
//	            SotW without full state cannot remove it
//	vague       the client holds resources from an earlier stream with unknown content. This
//	            ends for each name with an ACK or an unsubscription, or after 15 s if there is
//	            nothing to send
//
// Changes collect behind an unanswered delivery for at most 5 s (blocked). In delta, newly
// subscribed names do not wait for it.
//
// A name of a type is in one of these states. If several rows apply, "told" is the value of the
// last one. "May hold" is what mayHold yields in addition to the content of the view:
//
//	                         told               may hold       found in
//	never told               absent             nothing        -
//	told as in the view      the view's         nothing        base, or entry
//	differs from the view    the old one        the old one    dirty, or base
//	waits for a cluster      the old one        the old one    waits, entry
//	in flight                the new one        the old one    deliveries
//	refused                  either             old and new    refusals
//	removed, kept            as before          as before      leaving, entry
//	removed, released        as before          as before      leaving, dirty
//	unsubscribed in flight   absent             the new one    deliveries
//	told to be removed       absent             the old one    deliveries
//	  SotW, not full state   absent             the old one    leftovers
//	matches other names      others             nothing        matches, entry
//
// # Words
//
// Comments in this package use these words:
//
//	subscribed   the client sent the name in a request (Entry.Named)
//	wanted       a name that is subscribed, matched by a subscribed name, or in a scope. Under a
//	             wildcard every name counts as wanted (covers)
//	matched      the resource has a wanted alias, or is in a wanted collection
//	scope        a collection that stands for a wildcard under one resource of the parent type
//	on demand    a resource of the view that a wildcard does not cover
//	absent       a told state: the name does not exist, or nothing was sent for it yet
//	others       a told state: the name matches other resources, which are sent instead
//	base         the table that the wildcard subscription was told
//	entry        the row of one name (package names)
//	cargo        the content of a response: for each name an item, with the state in the response
//	             and the state told before
//	full state   a SotW response of listeners or clusters: what it lacks is removed. In code: world
//	dirty        the name may have to be sent
//	again        the name is to be sent, changed or not
//	lost         the client was told the resource, and the view does not have it any more
//	leaving      lost, but kept on the client: a resource there may refer to it. In code also: kept,
//	             lingering
//	released     leaving, but nothing refers to it any more: the removal is sent
//	lapsed       held by the client, but no wanted name matches it, and not because of an
//	             unsubscription
//	dropped      the client unsubscribed from the name. Under a wildcard, it must still be told the
//	             state of the name (DELTA-6)
//	muted        the absence of the name is not reported yet
//	unfed        the name gets no heartbeats
//	silent       the client has not answered a type for 15 s
//	stamp        name, version, hash and references of a resource, without its body (xds.Stamp)
//
// # Make before break
//
// On an aggregated stream, types wait for each other by name.
//
// Removals (withdraw.go, ADS-3, ADS-8). [xds.Stamp] lists the references of a resource: nil refers
// to everything, "*" to any resource of a type. The client may still hold resources that the view
// no longer has. A lost name is removed when none of these resources refers to it. The session
// decides this for each referring type (referrers). References of refused resources are firm until
// the names are sent again. Other references hold until the client answers. A name without
// references goes with the next response, also behind a NACK.
//
// Order (order.go, ADS-2, ADS-6). Routes, scoped routes and listeners that refer to a cluster are
// sent when the client has answered for that cluster. They do not wait for other clusters. A
// waiting name is evaluated again only when a name or a condition changes that can end the wait
// (waiting.go):
//
//	parked   the name waits and is not evaluated
//	touch    note that the entry of a name may have to be sent (package names)
//	note     note that a name has changed on which others may wait
//	recheck  evaluate the parked names that depend on noted names
//
// Assignments wait for nothing (ADS-7). Envoy ACKs clusters when they are warm. For that it needs
// their assignments again, changed or not (warm.go, WARM-2).
//
// Silence. If the client does not answer a type for 15 s, removals and order no longer wait for
// this type; the event Waived reports that. A NACK is an answer.
//
// Per-type streams (siblings.go, ADS-11). The sessions of the per-type streams of one connection and node
// are siblings. The rules above hold across them: for a session, the client has the subscriptions of all
// siblings (client, clientOf). Without siblings, or with siblings of several clients, a session does not
// see the answers to other types. Then it keeps removed names for the grace period, and orders nothing.
//
// # Resuming
//
// In the first request of a type, the client may state the resources that it holds (resume.go).
// Delta states names and versions. SotW states one version: [Options.Told] or a table of
// [Options.Recent] has its content. Known content counts as told, unknown content is vague. A type
// that a resuming client has not opened yet refers to everything for the grace period (5 s).
// Resources that refer to clusters wait up to 15 s for the client to open CDS.
//
// # Rooms
//
// A subscription is one type on one stream. Each part of a subscription belongs to a room, which is
// a group of files. Only the files of the room write to the part (TestRooms in internal/arch);
// other files call a method of the room. All files may read.
//
//	want, matching        what the client subscribes to    want.go match.go scope.go
//	record                told, sent and answered states   told.go delivery.go settle.go
//	                                                       refusal.go withheld.go refusing.go
//	                                                       retry.go world.go blamed.go
//	withdrawing, waiting  removals kept, names that wait   withdraw.go order.go waiting.go
//	                                                       warm.go due.go mute.go
//	saying                what to send next                diff.go say.go resend.go tell.go response.go
//	                                                       handover.go beat.go
//
// The rooms share package internal/names: the entries, one row for each name, and the lists of
// changed entries. A room reports a change there and calls no other room; recheck and respond read
// the lists. due.go has the questions what is owed for a name, and what blocks a type. state.go reads all
// rooms to report the state of types and names (Session.States, NameStates). resume.go and forget.go
// call all rooms.
//
// session.go has the main path: Receive and Change mark names as dirty. Responses prepares each
// type (finds lost and changed names), then sends news in push order, then removals in reverse.
// Where to change a rule:
//
//	which names a request means        replace, subscribe, unsubscribe (want.go); match (match.go)
//	the effect of an answer            settle, accept, refuse
//	when a refusal of a type ends      endRefusing (refusing.go)
//	when nothing may be sent           blocked (due.go)
//	the content to send                owed (due.go) for a name, respond (say.go) for a type
//	what counts as held                mayHold, keeps (told.go)
//	which removals wait, how long      leaverOf and holdOf (withdraw.go)
//	which news wait, how long          mustWait and mayLack (order.go), waitForAddresses (diff.go)
//	which streams are one client       Siblings.joined, ordersTypes (siblings.go)
//	the order inside a response        binders (handover.go), xds.Changes.HandOver
//	when a wait is evaluated again     inputs (waiting.go)
//	what ends without an answer        blockedBy, waitEnds, withdrawBy, mutedBy, beatBy, each
//	                                   next to its rule; Deadline takes the earliest
//	what a client held before          recall (SotW), resume (delta)
//
// # Invariants
//
// Each struct has its invariants at its fields. Tests check these invariants, and the following
// ones, after each step of each simulation (Check in export_test.go):
//
//   - Subscriptions are in push order, entries in the order of their names.
//   - A name has an entry if it is subscribed or scoped, if such a name matches it, if it is
//     leaving, or if its told state differs from base.
//   - Entry.Matched counts the sets of matches that contain the name.
//   - aliased has, for each matched name, the aliases that match it.
//   - The told state of an entry differs from the view only while the entry is dirty, parked or
//     leaving. So the cost of mayHold is the number of changes, not the number of resources.
//   - Each listed delivery is unanswered. A type has at most 69 deliveries and 16 refusals. While
//     unacked, the newest nonce belongs to the newest delivery.
//   - The hints of Change only save work. A session sends the same with hints, without hints, or if
//     only changes of its interests wake it.
//
// To begin, read a transcript in testdata. Each one runs in these three ways.
package protocol
