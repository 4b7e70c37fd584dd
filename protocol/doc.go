// Package protocol implements the xDS transport protocol as two pure state machines: [Session]
// is the server side of one stream, [Client] is the client side across streams. The package
// starts no goroutine, takes no lock, reads no clock and performs no I/O.
//
// # Inputs and outputs of a session
//
// Inputs are [Session.Receive] (a request), [Session.Change] (a new view, with the names that may
// differ) and [Session.Advance] (the time). After each input, drain [Session.Responses],
// [Session.Events] and [Session.Interests], and call Advance again at [Session.Deadline]. The
// view is the immutable set of resources that this client may see ([xds.View]). An idle stream
// releases it ([Session.Release]). No change needs to wake a stream before [Session.Waits].
//
// A response is the difference between the view and what the client was told. SotW and delta
// differ in few places: search for xds.SotW.
//
// # Told, and may hold
//
// A resource counts as told when it is sent, for a stream loses nothing and keeps its order
// (docs/adr/0002). Four records list where the client may hold something else:
//
//	delivery    an unanswered response: the client may also hold the state before it.
//	            It consists of parts, one for each message. A part is
//	              unanswered  the client holds the old or the new state
//	              accepted    the client holds the new state
//	              refused     the part has become a refusal
//	              passed      SotW: the ACK of a later response answers this part, too
//	            It is forgotten when all parts are answered. A delivery may be
//	              superseded  a later one was accepted: nothing waits for this one
//	              stuck       a cluster in it has no assignment: no ACK is expected
//	              joined      it includes an older delivery, as a type lists at most 4
//	refusal     the content of a NACKed message: the client may have applied all, some or none.
//	              held back   no name of it is sent while all are unchanged (DELTA-15)
//	              retold      a name has changed, so all of them are sent again
//	            A name leaves the refusal when the client accepts it anew or unsubscribes. In
//	            full state the ACK of a later response ends the refusal. Of more than 16
//	            refusals, two neighbours are merged.
//	orphan      SotW without full state cannot remove a name: the client holds it until it
//	            unsubscribes
//	vague       the client holds something from an earlier stream, but the content is unknown.
//	            It ends by name, with an ACK or an unsubscription, or after 15 s if there is
//	            nothing to send
//
// Only one delivery of a type is in flight. Changes collect behind it for at most 5 s (blocked).
// In delta, newly subscribed names do not wait.
//
// A name of a type is in one of these states. "Told" is the value of the last row that applies.
// "May hold" is what mayHold yields in addition to the content of the view:
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
//	  SotW, not full state   absent             the old one    orphans
//	matches other names      others             nothing        matches, entry
//
// # Make before break
//
// On an aggregated stream, types wait for each other by name.
//
// Removals (withdraw.go, ADS-3, ADS-8). [xds.Stamp] lists the references of a resource: nil refers
// to everything, "*" to any resource of a type. A name that the view has lost is removed when
// nothing refers to it that the client may hold and the view no longer has. That is decided for
// each referring type (referrers). References of refused resources are firm until the names are
// sent again. Other references hold until the client answers. A name without references goes
// with the next response, also behind a NACK.
//
// Order (order.go, ADS-2, ADS-6). Routes, listeners and scopes that refer to a cluster are sent
// when the client has answered for that cluster; they wait for no other. A waiting name is
// evaluated again only when something changes that it depends on (waiting.go):
//
//	rest    the name waits and is not evaluated
//	stir    note that a name has changed on which others may wait
//	spread  evaluate the names that depend on stirred names
//	rouse   evaluate one resting name
//	wake    evaluate all resting names
//
// Assignments wait for nothing (ADS-7). Envoy ACKs clusters when they are warm, and warming needs
// their assignments again, changed or not (warm.go, WARM-2).
//
// Silence. If a type answers nothing for 15 s, removals and order no longer wait for it; the event
// Waived reports that. A NACK is an answer. A stream of one type sees no answers of other types,
// so it keeps removed names for the grace period.
//
// # Resuming
//
// The first request of a type may state what the client holds (resume.go). Delta states names and
// versions. SotW states one version: [Options.Told] or a table of [Options.Recent] has its
// content. Known content counts as told, unknown content is vague. A type that a resuming client
// has not opened yet refers to everything for the grace period (5 s). Resources that refer to
// clusters wait up to 15 s for the client to open CDS.
//
// # Rooms
//
// A subscription is one type on one stream. Its parts belong to rooms, groups of files. Only the
// files of a room write to its part (TestRooms in internal/arch), and other files call a method
// there. All files may read.
//
//	want, matching        what the client subscribes to    want.go match.go scope.go
//	record                told, sent and answered states   told.go cargo.go delivery.go settle.go
//	                                                       refusal.go resume.go blamed.go
//	withdrawing, heed,    removals kept, names that wait   withdraw.go order.go waiting.go
//	waiting                                                warm.go
//	saying                what to send next                diff.go say.go tell.go response.go
//	                                                       beat.go mute.go
//
// The rooms share the entries, one row for each name (names.go). state.go reads all rooms to
// report the state of types and names (Session.States, NameStates).
//
// session.go has the main path: Receive and Change mark names as dirty. Responses prepares each
// type (finds lost and changed names), then sends news in push order, then removals in reverse.
// Where to change a rule:
//
//	which names a request means        replace, subscribe, unsubscribe (want.go); match (match.go)
//	the effect of an answer            settle, accept, refuse
//	when nothing may be sent           blocked (say.go)
//	the content to send                owed (diff.go) for a name, respond (say.go) for a type
//	what counts as held                mayHold, keeps (told.go)
//	which removals wait, how long      retain and free (withdraw.go)
//	which news wait, how long          ready and has (order.go)
//	when a wait is evaluated again     sight (waiting.go)
//	what ends without an answer        blockedBy, waitEnds, withdrawBy, mutedBy, beatBy, each
//	                                   next to its rule; Deadline takes the earliest
//	what a client held before          recall (SotW), resume (delta)
//
// # The client
//
// A [Client] outlives its streams. Inputs are [Client.Subscribe], [Client.Connected],
// [Client.Receive] and [Client.Advance], which comes first. After each, drain [Client.Events] and
// [Client.Requests]. One row has all that is known of a name (clientname.go):
//
//	asked, told    subscribed to; the server knows it. A difference is due as a request. Each
//	               resource held is covered by one of the two
//	res            held under this name. "*" and, with delta, an alias or a collection find it,
//	               too; found lists the resources that such a name finds
//	fault          the newest state cannot be used: it was refused, or the server reports an
//	               error. The resource held stays, except with DropOnError
//	gone           the name finds nothing: the server reported so, or sent nothing in time
//	timer          held: its TTL, with or without a stream. Otherwise the wait for the resource,
//	               from the request to the first word of the server or the end of the stream
//
// Where to change a rule:
//
//	requests, and the versions that a resume states  clientask.go
//	the meaning of a response, and its verdict       clienttake.go
//	changes of a name, and their events              clienthold.go
//	which names find a resource, when it is dropped  clientname.go
//	timers                                           clienttime.go
//
// A client states a version_info only if it holds all that the version means for the names of the
// stream's first request. A delta response costs its own size, not the number of resources held.
// A response about names without a subscription leaves nothing behind.
//
// # Invariants
//
// Each struct has its invariants at its fields. Tests check them, and these, after each step of
// each simulated world (Check in export_test.go):
//
//   - Subscriptions are in push order, entries in the order of their names.
//   - A name has an entry if it is subscribed or scoped, if such a name matches it, if it is
//     leaving, or if it was told something else than base has.
//   - entry.matched counts the sets of matches that contain the name.
//   - aliased has, for each matched name, the aliases that match it.
//   - The told value of an entry differs from the view only while the entry is dirty, rests or is
//     leaving. So mayHold costs the number of changes, not of resources.
//   - Each listed delivery is unanswered. A type has at most 4 deliveries and 16 refusals. While
//     unacked, the newest nonce belongs to the newest delivery.
//   - A hint only saves work: with hints, without them, or woken by its interests alone, a
//     session sends the same.
//
// To begin, read a transcript in testdata. Each one runs in these three ways.
package protocol
