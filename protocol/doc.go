// Package protocol is the xDS transport protocol as a pair of pure state
// machines: [Session] is the server's half of one stream, [Client] the client's.
// Nothing here starts a goroutine, takes a lock, reads a clock or performs I/O.
//
// # In and out
//
// Inputs are [Session.Receive] (a request), [Session.Change] (a new view, and the
// names that may differ) and [Session.Advance] (the time). After each, drain
// [Session.Responses], [Session.Events] and [Session.Interests], and come back at
// the [Session.Deadline]. The view is what the client may see: an immutable
// [xds.View]. A stream that idles gives it back ([Session.Release]), and need not
// be woken by changes for as long as [Session.Waits] says.
//
// The session keeps what the client was told; a response is the difference
// between that and the view. State of the world (SotW) and delta are two ways to
// say the same difference: look for xds.SotW, there are few places.
//
// # Told when sent
//
// What leaves counts as told at once, for a stream loses nothing and keeps its
// order (docs/adr/0002). What the client makes of it is remembered beside that,
// in as much as it may differ:
//
//	delivery    sent and unanswered: it may also have what was in force before.
//	            The states of each message (part) of one:
//	              unanswered  it has one or the other
//	              accepted    it has what the message carried
//	              refused     the message has become a refusal
//	              passed      SotW: a later one was accepted, which stands for it
//	            When all parts are answered the delivery is gone. Others are
//	              superseded  a later one was accepted: nothing waits for this
//	              stuck       a cluster in it has no assignment: expect no ACK
//	              joined      the fifth unanswered makes one of the oldest two: of what
//	                          was before both and what only the older said, one counts;
//	                          refused, what only that told becomes a refusal, and stays
//	                          listed until then if the one is answered first (delta)
//	refusal     refused: it may have applied all, some or none. What it was told to be
//	            gone it may have, and is told so again with the rest.
//	              held back   none of its names is sent while all are the same
//	              retold      one has moved, so all are told again
//	            A name leaves it when the client accepts what it was told then, or
//	            gives it up; a refused world when a later world is accepted.
//	            Of more than 16 two that follow each other become one, old ones first:
//	            of a name in both, what only the older said is taken for not held.
//	orphan      SotW cannot tell it that the name is gone: it has it until it
//	            drops the name
//	vague       it has something from an earlier stream, and nobody knows what,
//	            until it accepts what it is told here, or gives it up, name by name;
//	            15 s for names of which there is nothing to tell
//
// One delivery per type is under way; changes coalesce behind it, for 5 s at most
// (blocked). In delta, what the client asks for does not wait.
//
// A name of a type is in one of these states. "Told" is the last row that
// applies, "may hold" what mayHold yields of it beside what the view has:
//
//	                       told               may hold       found in
//	never told             absent             nothing        -
//	told as the view has   the view's         nothing        base, or entry
//	differs from the view  the old one        the old one    dirty, or base
//	waits for a cluster    the old one        the old one    waits, entry
//	under way              the new one        the old one    deliveries
//	refused                either             old and new    refusals
//	lost, and kept         what it was        what it was    leaving, entry
//	lost, and released     what it was        what it was    leaving, dirty
//	dropped on its way     absent             what comes     deliveries
//	told to be gone        absent             the old one    deliveries
//	  SotW, not full state absent             the old one    orphans
//	finds other names      others             nothing        matches, entry
//
// # Make before break
//
// On an aggregated stream, types wait for each other by name:
//
// Who refers (withdraw.go): a resource says in [xds.Stamp] to what it refers; nil
// is everything, "*" any resource of a type. A name that the view has lost leaves
// when nothing that the client may hold, and that is not current, refers to it.
// That is asked of the types that may refer to the type, one by one (referrers):
// what was refused and not told anew since is firm, all else holds until there is an
// answer. What nothing refers to goes with the next response, also behind a NACK.
//
// Who waits (order.go): routes, listeners and scopes that refer to a cluster leave
// when the client has answered for that cluster, and for no other. What was found to
// wait rests until something moves to which it refers:
//
//	rest    what was found to wait is not looked at again
//	stir    something has moved of a name for which others may wait
//	spread  what rests behind such names is made to be looked at
//	rouse   a name that rests is looked at
//	wake    all that rests is
//
// Assignments wait for nothing: Envoy acknowledges clusters when they are warm, and for
// that it must be told their assignments again, changed or not (warm.go).
//
// Who is silent: a type that has answered nothing for 15 s is waited for no longer,
// before a withdrawal or an order; an event Waived says so. A NACK is no silence. A
// stream of one type hears nothing of the others: what is lost stays for the grace.
//
// # Resuming
//
// The first request of a type may say what the client has (resume.go). Delta states
// names and versions; SotW a version, under which [Options.Told] knows what the client
// was told, or which a table of [Options.Recent] has. It is taken over as told. What is
// not known is vague. A type that a resuming client has not opened yet refers to
// everything for the grace (5 s); what refers to clusters waits for CDS to open, for
// 15 s.
//
// # The rooms
//
// A subscription is one type on one stream. Each of its parts is written to by the files of
// its room alone, which a test sees to (TestRooms in internal/deps): who wants another room to
// change asks it, by a verb that is a method there. All may read.
//
//	want, matching        what the client wants            want.go match.go scope.go
//	record                what it was told, and the fate   told.go cargo.go delivery.go settle.go
//	                                                       refusal.go resume.go blamed.go
//	withdrawing, heed,    what stays, what waits           withdraw.go order.go waiting.go
//	waiting                                                warm.go
//	saying                what is to be said next          diff.go say.go tell.go response.go beat.go
//
// state.go reads them all, for whoever asks how the client stands (Session.States, NameStates).
//
// They share the entries, a row for each name (names.go), which have verbs of their own; only
// who counts its names says that one is named (want.go), matched (match.go) or dirty (say.go,
// tell.go).
//
// session.go leads through them: Receive and Change mark names as dirty, Responses
// lets each type prepare (find what is lost and what differs), tell what is new in
// push order, then removals in reverse. Where to change a rule:
//
//	which names a request means        replace, subscribe, unsubscribe (want.go); match (match.go)
//	what an answer settles             settle, accept, refuse
//	when nothing may be sent           blocked (say.go)
//	what is said of a name             owed (diff.go), of a type respond (say.go)
//	what counts as held                mayHold, keeps (told.go)
//	what is kept, and until when       retain and free (withdraw.go)
//	what waits, and until when         ready and has (order.go)
//	when that is looked at again       sight (waiting.go)
//	what ends though nobody answers    blockedBy, waitEnds, withdrawBy, mutedBy, beatBy, each
//	                                   beside the rule that it ends; Deadline takes the earliest
//	what a client has from before      recall (SotW), resume (delta)
//
// # The client
//
// A [Client] outlives its streams. Inputs are [Client.Subscribe], [Client.Connected],
// [Client.Receive] and [Client.Advance], which comes first; after each, drain
// [Client.Events] and [Client.Requests]. All it knows of a name is one row (clientname.go):
//
//	asked, told    subscribed to; and the server knows. What differs is due. What is held is
//	               covered by one of the two
//	res            held under this very name. "*", with delta an alias or a collection, find it
//	               too; found counts the resources that such a name finds
//	fault          the newest that the server said cannot be used: it was refused, or the server
//	               reports an error. What is held stays, except with DropOnError
//	gone           it finds nothing: the server said so, or nothing in time
//	timer          held: of its TTL, stream or no stream. Else of its absence: from when the
//	               request left until anything is heard or the stream ends
//
// Where to change a rule:
//
//	what is asked, and what is stated of before  clientask.go
//	what a response means, and its verdict       clienttake.go
//	what becomes of a name, and who is told      clienthold.go
//	which names find a resource, what is let go  clientname.go
//	what ends by time                            clienttime.go
//
// A client states a version_info only if it has all that the version means, for the names that
// the stream's first request named. A response costs its size, with delta not what is held. What a
// server says of names that nobody asked for leaves nothing behind.
//
// # Invariants
//
// Each struct has its own at its fields. Tests check them, and these, after each step of each
// simulated world (Check in export_test.go):
//
//   - Subscriptions stand in push order; entries in the order of their names.
//   - A name has an entry if it is subscribed or scoped, if it is found by such a
//     name, if it is leaving, or if what was told of it is an exception to base.
//   - entry.matched counts the sets of matches that have the name.
//   - aliased has, of each name that is found, the aliases by which it is.
//   - What an entry was told differs from the view only while it is dirty, rests or
//     is leaving. So mayHold costs what has changed, and not what there is.
//   - No delivery that is listed is answered; there are 4 of a type at most, and 16
//     refusals. unacked: the newest nonce is of the newest delivery.
//   - A hint only saves work: told which names changed, told nothing, or woken by
//     its interests, a session says the same.
//
// Begin with a transcript in testdata; its story is replayed in these three ways.
package protocol
