package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// watched are the packages whose effects are listed.
var watched = []string{"xds", "protocol", "protocol/internal/client", "protocol/internal/names", "protocol/internal/sent", "protocol/protocoltest", "protocol/transcripts", "store", "wire", "server", "lazy", "rest", "xds/xdstest", "internal/envoy", "refs", "internal/envoy/refs", "internal/check/validate", "internal/envoy/protoyaml", "internal/envoy/export", "internal/envoy/importer", "internal/panics", "internal/text/jsonscan", "internal/text/glob", "internal/logs/dedup", "internal/limit/fair", "internal/limit/rate", "internal/limit/inbound", "internal/logs/async", "groups", "groups/cel", "internal/admin", "internal/auth/access", "internal/yamlkeys", "internal/envoy/nodemeta", "internal/admin/csds", "internal/admin/clients", "internal/relay/fetch", "internal/auth/identity", "client", "client/bootstrap", "client/metrics", "client/csds", "internal/admin/csds/live", "client/tree", "client/rest", "client/file", "internal/disk/watch", "internal/quarantine", "internal/quarantine/evidence", "internal/relay", "internal/cluster/revisions", "internal/cluster/revisions/file", "internal/cluster/etcdkv", "internal/cluster/revisions/etcd", "internal/cluster/revisions/enginetest", "internal/cluster/revsource", "internal/cluster/peers", "internal/cluster/rollout", "internal/endpoints", "internal/endpoints/etcd", "internal/endpoints/dns", "internal/endpoints/register"}

// effects lists every effect of these packages, by package, declaration and kind, with its reason.
var effects = map[string]string{
	"client Client goroutine":                       "Close waits for the loop, the goroutines of streams, and the writer of the disk",
	"client Client once":                            "Close may be called again",
	"client Client.run clock":                       "the time that the loop passes to all parts",
	"client Client.run timer":                       "wakes the loop for the next deadline",
	"client pacedCredentials mutex":                 "the time of the next handshake; not held during I/O",
	"client pacedCredentials.ClientHandshake clock": "the time of a handshake",
	"client pacedCredentials.ClientHandshake timer": "a pause before a handshake",
	"client grpcStream.Send timer":                  "a timeout for servers that do not read",
	"client/rest stream mutex":                      "the last request, for the poller; not held during I/O",
	"client/rest stream.Recv clock":                 "the time of the next poll",
	"client/rest stream.waitForPoll clock":          "the same",
	"client/rest stream.waitForPoll timer":          "the same",
	"client/file transport mutex":                   "no stream opens during Close, which waits for the open ones; not held during I/O",
	"client/file transport goroutine":               "a WaitGroup: Close waits for the watchers of files",
	"client/file stream mutex":                      "the last request, for the reader; not held during I/O",
	"client/file stream.Recv clock":                 "the time of the next look at the files",
	"client/file stream.untilSettled clock":         "the age of a written file",
	"client/file stream.look clock":                 "since when a resource exists",
	"internal/disk/watch NewWatcher goroutine":      "receives events of fsnotify; Close ends it",
	"internal/disk/watch Wait timer":                "the next look at the files",
	"internal/disk/watch Wait clock":                "the same",
	"internal/disk/watch Pace.rest clock":           "the same",
	"internal/disk/watch Pace.afterHint clock":      "the same",
	"internal/disk/watch Watcher mutex":             "the events since the last look; not held during I/O",
	"client mailbox mutex":                          "events of the loop that a watch has not read yet; not held during I/O",

	"internal/admin/csds Service once":       "message types are looked up on the first request",
	"internal/admin/csds answer.ask clock":   "time spent on clients that do not answer",
	"internal/admin/csds writer.Write clock": "the write deadline of an answer",

	"internal/relay/fetch fetcher goroutine":    "waits for the goroutines of its watches",
	"internal/relay/fetch fetcher.report clock": "the time of an event",
	"internal/relay/fetch fetcher.next timer":   "the end of a time without events",
	"internal/relay/fetch fetcher.next clock":   "the same",
	"internal/relay/fetch All clock":            "the start of a time without events",

	"xds Table mutex":  "shares Changes between streams; not held during I/O",
	"xds Changes once": "the body of a response is encoded once for all streams",

	"wire body once": "the pieces of a body are joined once, when a second stream sends them",

	"store Store.clock clock":                "the default clock, which WithClock replaces: the time of a commit",
	"xds/xdstest Serve goroutine":            "serves in memory; ends with the test",
	"xds/xdstest open goroutine":             "receives responses; ends with the test",
	"xds/xdstest Client.Next timer":          "a timeout of a test",
	"xds/xdstest Client.Await timer":         "the same",
	"xds/xdstest Client.ExpectNothing timer": "the end of a time without responses",
	"xds/xdstest Client.ExpectEnd timer":     "a timeout of a test",

	"store Store mutex":          "serializes writers; readers do not wait for them",
	"store index mutex":          "the watches of a name; held for a batch at a time",
	"store Store.ring goroutine": "rings the doorbells of streams, so that writers do not wait; ends after the last one",

	"lazy Source mutex":            "the state of names, for all streams; not held during I/O",
	"lazy Source.resolve clock":    "since when streams wait for a name",
	"lazy Source.start goroutine":  "runs a resolver, up to the allowed number; Run waits for them",
	"lazy Source.Run timer":        "the next deadline",
	"lazy Source.untilDue clock":   "the same",
	"lazy Source.process clock":    "the names that are due",
	"lazy Source.retryLater clock": "the time of the next try",

	"server retryBudget mutex":             "the retries of all streams; not held during I/O",
	"server retryBudget.take clock":        "the rate of retries",
	"server Server mutex":                  "the warnings given so far; not on a hot path",
	"server drain mutex":                   "counts open streams and polls",
	"server seats mutex":                   "the owners of streams; not held during I/O",
	"server pollMemory mutex":              "the memory that polls hold; not held during I/O",
	"server admission mutex":               "the order of first answers, for all streams; not held during I/O",
	"server clients mutex":                 "which clients are connected, for all streams",
	"server sentHistory mutex":             "the versions that returning clients may state, for all streams; not held during I/O",
	"server stream.recall clock":           "the same",
	"server stream.close clock":            "the same",
	"server Server.serve goroutine":        "reads the requests of a stream",
	"server Server.serve clock":            "the maximum age of a stream",
	"server stream.loop goroutine":         "handles one event and writes the response; its deep stack is freed at its end",
	"server stream.settle clock":           "the timeout of a write",
	"server stream.loop clock":             "whether a deadline has passed",
	"server stream.requests clock":         "the rate of requests",
	"server pause timer":                   "delays requests that exceed the rate",
	"server Server.delayOf clock":          "the rate of polls",
	"server stream.takeTicket clock":       "when a stream gives its turn to others",
	"server stream.refresh clock":          "the time that a session gets",
	"server stream.refreshAll clock":       "the time that the sessions of a client get",
	"server stream.leaveUnit clock":        "when a stream of a client ended",
	"server unit mutex":                    "the sessions of the per-type streams of a client; not held during I/O",
	"server units mutex":                   "the per-type streams of all clients; not held during I/O",
	"server stream.alarm clock":            "arms the only timer of the stream",
	"server timers.take timer":             "at most one for each stream",
	"server stream.await clock":            "whether a deadline has passed",
	"server stream.startLeaving clock":     "when a shed stream leaves",
	"server stream.startDrain clock":       "when a draining stream leaves",
	"server Stream.open clock":             "the start of a stream",
	"server heldBytes mutex":               "the memory of the names of all streams; not held during I/O",
	"server silentStreams mutex":           "the connections that have used their free silent stream; not held during I/O",
	"server Server.awaitRequest goroutine": "waits for the request of a unary call, which may never come; ends with the call",
	"server logKeysOf clock":               "which client was connected first",
	"server Server.runOther goroutine":     "ends a stream of another service against the will of its client; ends with the stream",

	"server Server.event clock":         "since when a node refuses a type",
	"server Server.logNack clock":       "time of the NACK, for a line that counts NACKs",
	"server Server.logLeft clock":       "how long a client was connected",
	"server textBudget mutex":           "the time spent on the search for secrets in texts, for all streams; not held during I/O",
	"server textBudget.look clock":      "the duration of a search",
	"server lru mutex":                  "the last answers of polls, and the refusals of nodes, for all streams",
	"server Server.Poll clock":          "the start of a poll",
	"server Poll.session clock":         "the time that a session gets",
	"server Poll.check clock":           "the time of the answer of a poll",
	"server Poll.checkLastAnswer clock": "the age of the last answer",
	"server Poll.wait timer":            "the maximum time of a held poll",
	"server Poll.wait clock":            "the remaining time of a held poll after a look for a newer revision",
	"server holdOf clock":               "the deadline of the client of a call",

	"rest Handler.ServeHTTP goroutine": "holds a poll, which frees the goroutine and the buffers of net/http; ends with the answer",
	"rest Handler.hold goroutine":      "detects that the client of a poll has left; ends with the poll",
	"rest heldConn.WriteHeader clock":  "the date of a response, and its write deadline",
	"rest encodings mutex":             "shares encodings between polls; not held during I/O",
	"rest encoding once":               "encodes once for all polls with the same answer",

	"internal/envoy Types mutex":              "caches message types; builds the descriptors of a file at its first use",
	"internal/check/validate Validator mutex": "caches the compiled rules of each message type",

	"internal/envoy ranks mutex": "caches the field order of each message type",

	"internal/logs/async Writer mutex":       "waiting log lines, for all writers; not held during I/O",
	"internal/logs/async New goroutine":      "waits for the reader of the log, so that writers do not; ends at Close",
	"internal/logs/async Writer.Close timer": "the maximum time that Close waits for the reader",

	"internal/logs/dedup Counter mutex":           "log lines by reason, for all writers; not held during I/O",
	"internal/logs/dedup Counter.allow timer":     "when repeated lines are counted",
	"internal/logs/dedup Counter.due timer":       "the same, for further repetitions",
	"internal/limit/inbound Budget mutex":         "the memory of received requests, of all connections; not held during I/O",
	"internal/limit/inbound reader mutex":         "a closed body is not stopped again; held while a read deadline is set",
	"internal/limit/inbound Conn mutex":           "the unfinished requests of a connection, for its reader and its writer; not held during I/O",
	"internal/limit/inbound Conn.queue timer":     "the maximum time that a connection waits to be read",
	"internal/limit/inbound Conn.note timer":      "looks at unfinished requests while there are any",
	"internal/limit/inbound Conn.limitRate clock": "the rate of streams that begin and end",
	"internal/limit/inbound Conn.delayRead timer": "delays the reads of a connection that exceeds this rate",
	"internal/limit/rate owner mutex":             "the rate of the connections of an owner; not held during I/O",
	"internal/limit/rate Owners mutex":            "the owners by address; not held during I/O",
	"internal/limit/inbound Budget.slow clock":    "whether an unfinished request makes progress",
	"internal/limit/inbound Budget.note clock":    "the start of an unfinished request",
	"internal/limit/inbound Budget.note timer":    "looks at a connection each second while it has an unfinished request",
	"internal/limit/inbound Budget.mayRead clock": "the start of the wait of a connection",
	"internal/limit/inbound Budget.serve clock":   "the start of the turn of a connection",

	"internal/admin/clients turnedAway mutex":     "peers that were not admitted; not held during I/O",
	"internal/admin/clients Tracker mutex":        "the index of clients; an event finds its row without this lock; not held during I/O",
	"internal/admin/clients row mutex":            "the state of a stream, for readers; not held during I/O",
	"internal/admin/clients causes mutex":         "causes of refusals, shared by all equal ones; not held during I/O",
	"internal/admin/clients refusalHistory mutex": "past refusals, also of clients that left; not held during I/O",
	"internal/admin/clients propagation mutex":    "how fast clients accepted the last commits; not held during I/O",
	"internal/admin/clients ring mutex":           "the newest events; not held during I/O",
	"internal/admin/clients bell mutex":           "goroutines that wait for a change; not locked without one",
	"internal/admin/clients New clock":            "the default clock, which Options.Now replaces",

	"internal/quarantine Source mutex": "the queue of streams to examine, the next retries, and the number of held resources; not held during I/O",
	"internal/relay Source mutex":      "the subscriptions of streams, and the decisions; not held during I/O",
	"internal/relay doubts mutex":      "the refusals of clients, for the check of the client; not held during I/O",
	"internal/relay Source.Run clock":  "the time until the next deadline",
	"internal/relay Source.Run timer":  "wakes Run for the next deadline",
	"internal/relay Source.step clock": "the time that Run passes to all parts",
	"internal/relay Source.use clock":  "since when no stream subscribes to a name",

	"internal/quarantine Source.Run goroutine":         "examine refusals, four at a time; Run waits for them",
	"internal/quarantine Source.Run timer":             "finds overdue searches",
	"internal/quarantine Source.judge clock":           "the rate of examinations of a stream, and the age of verdicts",
	"internal/quarantine Source.search clock":          "when a search begins",
	"internal/quarantine Source.step clock":            "when a search made progress",
	"internal/quarantine Source.proceed clock":         "whether a search is overdue",
	"internal/quarantine Source.giveUp clock":          "the pause before the stream is searched again",
	"internal/quarantine Source.endRetry clock":        "the next retry after a repeated refusal",
	"internal/cluster/revsource Accepted.Run clock":    "the age of the parts of servers",
	"internal/quarantine taken mutex":                  "cached results about addresses; not held during I/O",
	"internal/quarantine Watch.admit clock":            "the first retry after a refusal",
	"internal/quarantine Watch.Hasten clock":           "the next retry after an accepted resource",
	"internal/quarantine Watch.before clock":           "the age of versions that other clients accepted",
	"internal/quarantine Watch.show clock":             "when a commit replaced a version",
	"internal/quarantine dependencies.lastKnown clock": "the age of a removed resource",
	"internal/quarantine/evidence Book mutex":          "the scopes; not held during I/O",
	"internal/quarantine/evidence Scope mutex":         "the versions that the clients of a scope accepted; not held during I/O",
	"internal/quarantine Watch mutex":                  "pending orders and resources in quarantine, shared by the stream, examiners and readers; not held during I/O",
	"internal/quarantine replacements mutex":           "resources that are served in place of refused ones, for all streams; not held during I/O",
	"internal/quarantine searches mutex":               "running and waiting searches of all streams; not held during I/O",
	"internal/quarantine siblings mutex":               "the streams of clients with a stream for each type; not held during I/O",
	"internal/quarantine tables mutex":                 "goroutines other than the stream may read a view; not held during I/O",
	"internal/quarantine verdicts mutex":               "faulty resources by refusal, for all streams; not held during I/O",

	"internal/auth/access shared mutex":      "the policy, the views and the lenses of all streams; not held during I/O",
	"internal/auth/access lenses mutex":      "other goroutines than the stream may read a view; not held during I/O",
	"internal/auth/access limitedView mutex": "the same",
	"internal/auth/access New clock":         "the default of Options.Now: when identities expire",
	"internal/auth/access View.watch timer":  "rings when an identity expires; Close stops it",

	"internal/auth/identity Keys.Run timer":                 "the time of the next read",
	"internal/auth/identity Keys.refresh clock":             "when a read began",
	"internal/auth/identity Finder.Find clock":              "whether a token or certificate has expired",
	"internal/auth/identity expiring.ServerHandshake clock": "how long the certificate of a connection is valid",
	"internal/auth/identity closeIn timer":                  "closes a connection before its certificate expires",

	"internal/panics Do recover":               "a panic ends the function, not the process",
	"protocol/transcripts Replay recover":      "a panic of the tested implementation is its answer",
	"protocol/protocoltest story.play recover": "the same",

	"protocol/internal/client intake.check recover": "a panic of the check of an embedder is an error of the resource, sent in the NACK",

	"internal/admin unexpired clock":            "whether the certificate of a caller has expired",
	"internal/admin Server once":                "makes the limits of all addresses",
	"internal/admin Server.bundle clock":        "the time in the name of an archive",
	"internal/admin Server mutex":               "the number of large answers of each connection; not held during I/O",
	"internal/admin waiting.look goroutine":     "asks streams for their state, four at a time; ends with the look",
	"internal/admin waiting.look mutex":         "their answers; not held during I/O",
	"internal/admin waiting.run clock":          "the duration of a look",
	"internal/admin waiting.run timer":          "looks again without a doorbell, and less often than answers come",
	"internal/admin Server.survey goroutine":    "asks other servers during a request; ends with the request",
	"internal/admin sharedDoor mutex":           "callers inside and waiting; not held during I/O",
	"internal/admin places mutex":               "the places of waits; not held during I/O",
	"internal/admin places.enter clock":         "how long a wait has its place",
	"internal/admin Server.wait clock":          "the write deadline of a long wait",
	"internal/admin Server.waitSynced clock":    "the deadline of the wait",
	"internal/admin syncedWait.run clock":       "whether the deadline has passed; the interval of rounds",
	"internal/admin syncedWait.round clock":     "the time that is left for a round",
	"internal/admin syncedWait.thaw clock":      "how long a group is frozen",
	"internal/admin syncedWait.pause clock":     "the time that is left for a pause",
	"internal/admin syncedWait.pause timer":     "the pause between two rounds",
	"internal/admin waitLines.keepOpen clock":   "the time of the next line without fields",
	"internal/admin waitLines.send clock":       "the same",
	"internal/admin Server.reload clock":        "the write deadline of a reload",
	"internal/admin Server.ready clock":         "the rate of probes",
	"internal/admin Server.spreadOut timer":     "the pause between two streams of a group",
	"internal/admin sharedDoor.wait timer":      "the maximum wait of a request while others are in flight",
	"internal/admin Server.events clock":        "when a reader with a pace may get its next write",
	"internal/admin Server.events timer":        "the same",
	"internal/admin pacer mutex":                "callers that wait for one answer; not held while it is made",
	"internal/admin pacer.enter clock":          "which questions were not asked for a while",
	"internal/admin pacer.serve clock":          "how long an answer takes",
	"internal/admin pacer.serve timer":          "the pause between two answers",
	"internal/admin eventWriter.idle clock":     "the time of the next comment",
	"internal/admin eventWriter.flush clock":    "the timeout of a write",
	"internal/admin Server.signedIn clock":      "whether a session has ended",
	"internal/admin Server.answerSession clock": "the time of the next seal of a session",
	"internal/admin Server.finishOIDC clock":    "when a session begins, and the rate of failed sign-ins",
	"internal/admin Server.signIn clock":        "when a session begins, and the rate of failed sign-ins",
	"internal/admin tries mutex":                "failed sign-ins by address; not held during I/O",

	"internal/admin feed.run goroutine":  "reads the next lines during a write; ends before its request",
	"internal/admin feed.run clock":      "the start of the last write",
	"internal/admin feed.setFault clock": "since when a sender cannot update its endpoints",
	"internal/admin feed.run timer":      "collects lines that come fast into one write",
	"internal/admin feed.expect clock":   "the deadline of the next line or message",
	"internal/admin Server.commit clock": "a large commit has a longer deadline than other requests",
	"internal/admin steady.Read clock":   "whether the body of a commit comes too slowly",
	"internal/admin slowly.Write clock":  "the timeout of a write of a long answer",
	"internal/admin feed.answer clock":   "the deadline of the answer",

	"internal/endpoints DiskShadow mutex":           "changes that are not on disk yet; not held during I/O",
	"internal/endpoints DiskShadow.Watch goroutine": "write changes to the disk, and shorten its journal; end with Watch",
	"internal/endpoints DiskShadow.Watch mutex":     "endpoints from disk come before all other changes, or not at all",
	"internal/endpoints DiskShadow.run timer":       "the time of the next write to the disk",
	"internal/endpoints Local mutex":                "the registered endpoints, and the callers that wait for the disk; one of the two is held during a write to the disk",
	"internal/endpoints Open clock":                 "leases restart at a start",
	"internal/endpoints Local.Grant clock":          "the expiry of a lease",
	"internal/endpoints Local.Renew clock":          "the same",
	"internal/endpoints Local.Watch clock":          "the same",
	"internal/endpoints Registry.List clock":        "which leases end soon",
	"internal/endpoints Local.Watch timer":          "wakes Watch when the next lease expires",
	"internal/endpoints Local.end clock":            "the expired leases",
	"internal/endpoints Local.wrote clock":          "the time of the next try",
	"internal/endpoints Local.repair clock":         "the time of the next try",
	"internal/endpoints Registry mutex":             "the registered endpoints, for readers; not held during I/O, but while changes are committed to the store",
	"internal/endpoints Registry.Run goroutine":     "commits changes to the store; ends with Run",
	"internal/endpoints Registry.serve timer":       "collects changes into one commit, and limits log lines",
	"internal/endpoints Session.KeepAlive clock":    "when a lease must be renewed",
	"internal/endpoints Session.write clock":        "the same",

	"internal/endpoints/etcd Engine.Watch goroutine":  "looks at the etcd until the watch ends",
	"internal/endpoints/etcd Engine.poll timer":       "the interval between two looks at the etcd",
	"internal/endpoints/etcd Engine mutex":            "the revisions that the watch has seen, for writers; not held during I/O",
	"internal/endpoints/etcd Engine.commit goroutine": "the transactions of one write run at the same time, so that etcd syncs its disk once; commit waits for all",
	"internal/endpoints/etcd Engine.Revoke goroutine": "revokes leases at the same time; Revoke waits for all",
	"internal/endpoints/etcd Engine.commit mutex":     "the newest revision of these transactions",
	"internal/endpoints/etcd Engine.await timer":      "the maximum wait until a watch has seen a write",

	"internal/cluster/revisions Open clock":                         "the default clock, which Options.Now replaces: the time of a revision",
	"internal/cluster/revisions each goroutine":                     "reads and writes eight values at the same time; the caller waits for them",
	"internal/cluster/revisions loader.read mutex":                  "the pages that they have read; not held during I/O",
	"internal/cluster/revisions Repository.rest timer":              "looks for a newer revision without a doorbell",
	"internal/cluster/revisions/file within goroutine":              "a call to a disk that may hang: the caller waits for a limited time; at most 64",
	"internal/cluster/revisions/file Engine.Announce timer":         "notices that the directory was replaced, for example by a backup",
	"internal/cluster/revisions/file Engine.lock timer":             "waits for the swap of another program",
	"internal/cluster/revisions/file Engine.clean clock":            "whether a killed program has left a file",
	"internal/cluster/revisions/file Engine.Watch goroutine":        "receives changes of files; ends with its context",
	"internal/cluster/revisions/file Engine.Watch timer":            "looks at the files without an event of the system",
	"internal/cluster/revsource Refusals mutex":                     "the refusals of clients; not held during I/O",
	"internal/cluster/revsource Refusals.move clock":                "the time of a refusal",
	"internal/cluster/revsource Refusals.same clock":                "the age of a refusal, which expires",
	"internal/cluster/revsource Refusals.sync clock":                "the same",
	"internal/cluster/revsource keepSynced timer":                   "one write a second, and a look without a hint of the engine",
	"internal/cluster/revsource asks mutex":                         "the pending reads of the repository; not held during I/O",
	"internal/cluster/revsource asks.join goroutine":                "reads the head for all callers together; ends within 2 s of the last of them",
	"internal/cluster/revsource replaced mutex":                     "the revisions of replaced versions, for status; not held during I/O",
	"internal/cluster/revsource Source.readHead goroutine":          "reads the head from an engine that may ignore its context; one at a time",
	"internal/cluster/revsource asks.answer clock":                  "since when the newest revision is unknown",
	"internal/cluster/rollout Runner mutex":                         "the served revisions; not held during I/O",
	"internal/cluster/rollout Runner.report goroutine":              "reports how clients accept a rollout; ends with the rollout",
	"internal/cluster/rollout Runner.report timer":                  "a pause before a failed report is repeated",
	"internal/cluster/rollout Runner.Run goroutine":                 "waits for the goroutines that report",
	"internal/cluster/rollout Runner.Run clock":                     "the duration of a look",
	"internal/cluster/rollout Runner.Run timer":                     "looks at clients and store during a rollout",
	"internal/cluster/rollout driver.drive clock":                   "when the lease was last requested",
	"internal/cluster/rollout driver.decide clock":                  "the start of a step, and how long clients have accepted it",
	"internal/cluster/rollout Steering.Freeze clock":                "the time of the request",
	"internal/cluster/rollout Steering.Unfreeze clock":              "the same",
	"internal/cluster/rollout Steering.StartRollout clock":          "the same",
	"internal/cluster/rollout Steering.ChangeRollout clock":         "the same",
	"internal/cluster/peers Replicas mutex":                         "the list of servers, for all readers; not held during I/O",
	"internal/cluster/peers Replicas.Run goroutine":                 "announces this server while Run looks for others; ends with its context",
	"internal/cluster/peers Replicas.announce goroutine":            "updates the announcement of this server; ends with the announcement",
	"internal/cluster/peers Replicas.look clock":                    "when the list was read",
	"internal/cluster/peers Replicas.Streams clock":                 "the age of the answers of others",
	"internal/cluster/peers Replicas.note clock":                    "when a server answered last",
	"internal/cluster/peers Replicas.others clock":                  "the age of the list",
	"internal/cluster/peers Replicas.sendAll goroutine":             "asks all servers at the same time; ends within a second",
	"internal/cluster/peers Replicas.sendAll mutex":                 "collects one answer at a time",
	"internal/cluster/peers pause timer":                            "the pause between two looks or announcements",
	"internal/cluster/revisions/etcd Engine.Watch goroutine":        "receives changes; ends with its context",
	"internal/cluster/etcdkv past mutex":                            "the newest known revision of the etcd; held for memory only",
	"internal/cluster/etcdkv past.answered clock":                   "when the etcd went back, for people",
	"internal/cluster/etcdkv Conn.Watch timer":                      "a pause before a watch is opened again",
	"internal/cluster/revisions/etcd Engine.Lease goroutine":        "reports the loss of a lease; ends with the lease",
	"internal/cluster/revisions/enginetest announcements goroutine": "programs that announce themselves; end with the test",
	"internal/cluster/revisions/enginetest backup goroutine":        "a program that announces itself; ends with the test",
	"internal/cluster/revisions/enginetest backupOfHolds goroutine": "a program that announces itself; ends with the test",
	"internal/cluster/revisions/enginetest announcements timer":     "a timeout of a test",
	"internal/cluster/revisions/enginetest watching goroutine":      "a watch while values are damaged; ends with the test",
	"internal/cluster/revisions/enginetest histories clock":         "a seed",
	"internal/cluster/revisions/enginetest swaps goroutine":         "programs that swap concurrently; end with the test",
	"internal/cluster/revisions/enginetest writers goroutine":       "programs that commit concurrently; end with the test",
	"internal/cluster/revisions/enginetest writers mutex":           "the revisions that they made; not held during I/O",
	"internal/cluster/revisions/enginetest sweeps goroutine":        "programs that read and sweep concurrently; end with the test",
	"internal/cluster/revisions/enginetest sweeps timer":            "a pause between sweeps",
	"internal/cluster/revisions/enginetest watches timer":           "a timeout of a test",
	"internal/cluster/revisions/enginetest Floors clock":            "the measured time",

	"internal/endpoints/dns Watcher.Run goroutine": "queries DNS servers, up to the allowed number; Run waits for them",
	"internal/endpoints/dns Watcher.Run clock":     "the time that Run passes to all parts",
	"internal/endpoints/dns Watcher.Run timer":     "the time of the next query",

	"internal/endpoints/register Registrar mutex":             "the endpoints of owners; not held during I/O",
	"internal/endpoints/register rest timer":                  "a pause before the server is asked again",
	"internal/endpoints/register Registrar.session timer":     "the timeout of a server",
	"internal/endpoints/register Registrar.session goroutine": "receives answers; the session waits for it",
	"internal/endpoints/register session.run timer":           "when the lease is renewed, and when refused endpoints are sent again",
	"internal/endpoints/register session.send timer":          "the timeout of a server",

	"internal/envoy/export wait timer": "waits between two steps of an export, so that Envoy reads the first one",
}

// effectOf maps uses of other packages to the kind of their effect.
var effectOf = map[string]string{
	"time.Now": "clock", "time.Since": "clock", "time.Until": "clock", "time.Sleep": "timer",
	"time.After": "timer", "time.AfterFunc": "timer", "time.NewTimer": "timer", "time.NewTicker": "timer", "time.Tick": "timer",
	"sync.Mutex": "mutex", "sync.RWMutex": "mutex", "sync.Once": "once", "sync.Map": "mutex", "sync.WaitGroup": "goroutine",
}

// A goroutine, clock, timer, lock or recover needs an entry with its reason.
func TestEffects(t *testing.T) {
	found := map[string][]string{}
	for _, pkg := range watched {
		files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				effectsIn(t, pkg, file, found)
			}
		}
	}
	for _, effect := range slices.Sorted(maps.Keys(found)) {
		if effects[effect] == "" {
			t.Errorf("%s: %q is not listed: remove the effect, or list it with its reason", strings.Join(found[effect], ", "), effect)
		}
	}
	for effect := range effects {
		if found[effect] == nil {
			t.Errorf("%q is listed, but the effect does not exist", effect)
		}
	}
}

// effectsIn adds the positions of the effects in a file to found. A key has the package, the declaration and the
// kind.
func effectsIn(t *testing.T, pkg, file string, found map[string][]string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range f.Decls {
		for name, node := range declared(decl) {
			ast.Inspect(node, func(n ast.Node) bool {
				kind := ""
				switch n := n.(type) {
				case *ast.GoStmt:
					kind = "goroutine"
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "recover" {
						kind = "recover"
					}
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						kind = effectOf[x.Name+"."+n.Sel.Name]
					}
				}
				if kind != "" {
					key := strings.Join([]string{pkg, name, kind}, " ")
					found[key] = append(found[key], fset.Position(n.Pos()).String())
				}
				return true
			})
		}
	}
}

// declared returns the names in a declaration, with their nodes.
func declared(decl ast.Decl) map[string]ast.Node {
	names := map[string]ast.Node{}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			typ := d.Recv.List[0].Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			if index, ok := typ.(*ast.IndexExpr); ok {
				typ = index.X
			}
			if id, ok := typ.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		names[name] = d
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = s
			case *ast.ValueSpec:
				names[s.Names[0].Name] = s
			}
		}
	}
	return names
}
