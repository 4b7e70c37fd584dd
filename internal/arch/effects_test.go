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

// The packages whose effects are listed.
var watched = []string{"xds", "protocol", "protocol/protocoltest", "store", "wire", "server", "lazy", "rest", "xds/xdstest", "internal/envoy", "refs", "internal/envoy/refs", "internal/check/validate", "internal/envoy/protoyaml", "internal/envoy/export", "internal/envoy/importer", "internal/panics", "internal/text/jsonscan", "internal/text/glob", "internal/logs/dedup", "internal/limit/fair", "internal/limit/rate", "internal/limit/inbound", "internal/logs/async", "groups", "groups/cel", "internal/admin", "internal/auth/access", "internal/yamlkeys", "internal/envoy/nodemeta", "internal/admin/csds", "internal/admin/clients", "internal/relay/fetch", "internal/auth/identity", "client", "client/bootstrap", "client/metrics", "client/csds", "internal/admin/csds/live", "client/tree", "client/rest", "client/file", "internal/disk/watch", "internal/quarantine", "internal/relay", "internal/cluster/revisions", "internal/cluster/revisions/file", "internal/cluster/revisions/etcd", "internal/cluster/revisions/enginetest", "internal/cluster/revsource", "internal/cluster/peers", "internal/cluster/rollout", "internal/endpoints", "internal/endpoints/etcd", "internal/endpoints/dns", "internal/endpoints/register"}

// Every effect they have, by package, declaration and kind, and why it is there.
var effects = map[string]string{
	"client Client goroutine":                  "waits for the loop, which owns what a client knows, the two goroutines of each stream, and who writes to the disk; Close ends them",
	"client Client once":                       "Close is called again",
	"client Client.run clock":                  "the time that the loop tells all parts",
	"client Client.run timer":                  "wakes the loop when the next thing is due",
	"client grpcStream.Send timer":             "nobody waits for ever for a server that reads nothing",
	"client/rest stream mutex":                 "what was sent last, for who polls; held for memory only",
	"client/rest stream.Recv clock":            "when the next poll is due",
	"client/rest stream.waitForPoll clock":     "the same",
	"client/rest stream.waitForPoll timer":     "the same",
	"client/file transport mutex":              "no stream opens while Close begins, which waits for all that are open; held for no I/O",
	"client/file transport goroutine":          "a WaitGroup: Close waits for the watchers of files",
	"client/file stream mutex":                 "what was asked for last, for who reads; held for memory only",
	"client/file stream.Recv clock":            "when to look again",
	"client/file stream.untilSettled clock":    "how long ago a file was written",
	"client/file stream.look clock":            "since when something is there",
	"internal/disk/watch NewWatcher goroutine": "receives events of fsnotify; Close ends it",
	"internal/disk/watch Wait timer":           "the next look at the files",
	"internal/disk/watch Wait clock":           "the same",
	"internal/disk/watch Pace.rest clock":      "the same",
	"client mailbox mutex":                     "what the loop has told and a watch has not taken; held for memory only",

	"internal/admin/csds Service once":       "message types are looked up on the first request",
	"internal/admin/csds answer.ask clock":   "time spent on clients that do not answer",
	"internal/admin/csds writer.Write clock": "the write deadline of an answer",

	"internal/relay/fetch fetcher goroutine":  "waits for those of its watches",
	"internal/relay/fetch fetcher.tell clock": "when it happened",
	"internal/relay/fetch fetcher.next timer": "how long nothing comes",
	"internal/relay/fetch fetcher.next clock": "the same",
	"internal/relay/fetch All clock":          "since when nothing has come",

	"xds Table mutex":  "shares Changes between streams; held for memory only",
	"xds Changes once": "a response's body is encoded once for all streams",

	"wire body once": "pieces are joined once, when a second stream sends them",

	"store Store.clock clock":                "the default clock, which WithClock replaces: when a commit was made",
	"xds/xdstest Serve goroutine":            "serves in memory; ends with the test",
	"xds/xdstest open goroutine":             "receives what a client is told; ends with the test",
	"xds/xdstest Client.Next timer":          "no test waits for ever",
	"xds/xdstest Client.Await timer":         "the same",
	"xds/xdstest Client.ExpectNothing timer": "how long nothing comes",
	"xds/xdstest Client.ExpectEnd timer":     "no test waits for ever",

	"store Store mutex":          "writers take turns; readers wait for none of them",
	"store index mutex":          "who wants to hear of a name; held for a batch at a time",
	"store Store.ring goroutine": "rings doorbells so that no writer waits for streams; ends when all are rung",

	"lazy Source mutex":            "what is remembered of names, for all streams; held for memory only",
	"lazy Source.resolve clock":    "since when streams wait for a name",
	"lazy Source.start goroutine":  "a resolver works; as many as are allowed, and Run waits for them",
	"lazy Source.Run timer":        "the next thing that is due",
	"lazy Source.untilDue clock":   "the same",
	"lazy Source.process clock":    "what is due",
	"lazy Source.retryLater clock": "when to look again",

	"server Server mutex":                  "which warnings were given; off every hot path",
	"server drain mutex":                   "counts open streams and polls",
	"server seats mutex":                   "whose they are; held for memory only",
	"server pollMemory mutex":              "the same of what polls hold",
	"server admission mutex":               "who is answered first, for all streams; held for memory only",
	"server clients mutex":                 "which clients are connected, for all streams",
	"server sentHistory mutex":             "what clients may state when they come back, for all streams; held for memory only",
	"server stream.remember clock":         "how long that is remembered",
	"server stream.recall clock":           "the same",
	"server stream.close clock":            "the same",
	"server Server.serve goroutine":        "reads a stream's requests",
	"server Server.serve clock":            "when a stream will be old",
	"server stream.loop goroutine":         "handles one event and writes what comes of it; its deep stack ends with it",
	"server stream.settle clock":           "when a write has taken too long",
	"server stream.loop clock":             "when a deadline has passed",
	"server stream.requests clock":         "how fast requests come",
	"server pause timer":                   "requests that come too fast wait",
	"server Server.delayOf clock":          "how fast polls come",
	"server stream.takeTicket clock":       "when a stream makes room for others",
	"server stream.refresh clock":          "the time a session is told",
	"server stream.alarm clock":            "arms the stream's one timer",
	"server timers.take timer":             "each stream has one at most",
	"server stream.await clock":            "when a deadline has passed",
	"server stream.startLeaving clock":     "the same of one that is shed",
	"server stream.startDrain clock":       "when a draining stream leaves",
	"server Stream.open clock":             "since when a stream is open",
	"server heldBytes mutex":               "what the names of all streams hold; held for memory only",
	"server silentStreams mutex":           "which connections have one for free; held for memory only",
	"server Server.awaitRequest goroutine": "waits for the request of a unary call, which may never come; ends with the call",
	"server logKeysOf clock":               "who was connected before the others",
	"server Server.runOther goroutine":     "a stream of another service ends though its client does not want it; ends with that",

	"server Server.event clock":         "since when a node refuses a type",
	"server Server.logRecovered clock":  "the same",
	"server Server.logLeft clock":       "since when a client was connected",
	"server textBudget mutex":           "how long it took to look for secrets in texts, for all streams; held for memory only",
	"server textBudget.look clock":      "how long that takes",
	"server lru mutex":                  "what polls were told, and what nodes refused, for all streams",
	"server Server.Poll clock":          "since when a poll is open",
	"server Poll.session clock":         "the time a session is told",
	"server Poll.check clock":           "when a poll was answered",
	"server Poll.checkLastAnswer clock": "how long ago that was",
	"server Poll.wait timer":            "when a poll was held long enough",
	"server Poll.wait clock":            "how long it may still be held when it asks for what is newer",
	"server holdOf clock":               "when the client of a call gives up",

	"rest Handler.ServeHTTP goroutine": "holds a poll, so that net/http's goroutine and buffers are free; ends with its answer",
	"rest Handler.hold goroutine":      "notices that the client of a poll is gone; ends with the poll",
	"rest heldConn.WriteHeader clock":  "dates a response, and when writing it has taken too long",
	"rest encodings mutex":             "shares encodings between polls; held for memory only",
	"rest encoding once":               "encodes for all who are told the same",

	"internal/envoy Types mutex":              "caches message types; builds the descriptors of a file at its first use",
	"internal/check/validate Validator mutex": "caches the compiled rules of each message type",

	"internal/envoy ranks mutex": "caches the field order of each message type",

	"internal/logs/async Writer mutex":       "lines that wait, for all who log; held for memory only",
	"internal/logs/async New goroutine":      "waits for the reader so that nobody else does; ends when closed",
	"internal/logs/async Writer.Close timer": "how long the end of a program waits for the reader",

	"internal/logs/dedup Counter mutex":           "what is said for the same reason, for all who say it; held for memory only",
	"internal/logs/dedup Counter.allow timer":     "when lines that say the same are counted",
	"internal/logs/dedup Counter.due timer":       "the same, while they are repeated",
	"internal/limit/inbound Budget mutex":         "what requests hold, of all connections; held for memory only",
	"internal/limit/inbound reader mutex":         "nobody is stopped whose body was closed; held while a read deadline is set",
	"internal/limit/inbound Conn mutex":           "what has begun on a connection, for who reads and who writes; held for memory only",
	"internal/limit/inbound Conn.queue timer":     "nobody waits for ever to be read",
	"internal/limit/inbound Conn.note timer":      "looks at requests that have begun, while there are some",
	"internal/limit/inbound Conn.limitRate clock": "how fast streams come and go",
	"internal/limit/inbound Conn.rest timer":      "a connection whose streams come and go too fast is read later",
	"internal/limit/rate owner mutex":             "how fast several come together; held for memory only",
	"internal/limit/rate Owners mutex":            "which address has which pace; held for memory only",
	"internal/limit/inbound Budget.slow clock":    "whether what has begun comes on",
	"internal/limit/inbound Budget.note clock":    "since when something has begun",
	"internal/limit/inbound Budget.note timer":    "looks at a connection each second while something has begun on it",
	"internal/limit/inbound Budget.mayRead clock": "since when somebody waits",
	"internal/limit/inbound Budget.serve clock":   "since when it is a connection's turn",

	"internal/admin/clients turnedAway mutex":     "peers that were not admitted; held for memory access only",
	"internal/admin/clients Tracker mutex":        "the index of clients; an event finds its row without this lock; held for memory access only",
	"internal/admin/clients row mutex":            "the state of a stream, for readers; held for memory access only",
	"internal/admin/clients causes mutex":         "causes of refusals, shared by all equal ones; held for memory access only",
	"internal/admin/clients refusalHistory mutex": "past refusals, also of clients that left; held for memory access only",
	"internal/admin/clients ring mutex":           "the newest events; held for memory access only",
	"internal/admin/clients bell mutex":           "goroutines that wait for a change; not locked without one",
	"internal/admin/clients New clock":            "the default clock, which Options.Now replaces",

	"internal/quarantine Source mutex": "the queue of streams to examine, and the number of held resources; held for memory access only",
	"internal/relay Source mutex":      "what streams want and what is decided; held for memory only",
	"internal/relay doubts mutex":      "what clients refuse, for the check of the client; held for memory only",
	"internal/relay Source.Run clock":  "how long that is",
	"internal/relay Source.Run timer":  "wakes Run when the next thing is due",
	"internal/relay Source.step clock": "the time that Run tells all parts",
	"internal/relay Source.use clock":  "since when nobody wants a name",

	"internal/quarantine Source.Run goroutine": "examine refusals, four at a time; Run waits for them",
	"internal/quarantine Source.Run timer":     "finds overdue searches",
	"internal/quarantine Source.judge clock":   "the rate of examinations of a stream, and the age of verdicts",
	"internal/quarantine Source.search clock":  "when a search begins",
	"internal/quarantine Source.step clock":    "when a search made progress",
	"internal/quarantine Source.proceed clock": "whether a search is overdue",
	"internal/quarantine Source.giveUp clock":  "the pause before the stream is searched again",
	"internal/quarantine Watch mutex":          "pending orders and resources in quarantine, shared by the stream, examiners and readers; held for memory access only",
	"internal/quarantine replacements mutex":   "resources that are served in place of refused ones, for all streams; held for memory access only",
	"internal/quarantine searches mutex":       "running and waiting searches of all streams; held for memory access only",
	"internal/quarantine tables mutex":         "goroutines other than the stream may read a view; held for memory access only",
	"internal/quarantine verdicts mutex":       "faulty resources by refusal, for all streams; held for memory access only",

	"internal/auth/access shared mutex":     "the policy, the views and the lenses of all streams; never held during I/O",
	"internal/auth/access lenses mutex":     "other goroutines than the stream may read a view; never held during I/O",
	"internal/auth/access limited mutex":    "the same",
	"internal/auth/access New clock":        "the default of Options.Now: when identities expire",
	"internal/auth/access View.watch timer": "rings when an identity expires; Close stops it",

	"internal/auth/identity Keys mutex":                     "the state of the one read of keys at a time; never held during I/O",
	"internal/auth/identity Keys.refresh goroutine":         "reads keys; ends after 5 s at most",
	"internal/auth/identity Keys.Run timer":                 "the time of the next read",
	"internal/auth/identity Keys.Run clock":                 "when a read began",
	"internal/auth/identity Keys.find clock":                "the same",
	"internal/auth/identity OpenKeys clock":                 "the same",
	"internal/auth/identity Finder.Find clock":              "whether a token or certificate has expired",
	"internal/auth/identity expiring.ServerHandshake clock": "how long the certificate of a connection is valid",
	"internal/auth/identity closeIn timer":                  "closes a connection before its certificate expires",

	"internal/panics Do recover":             "a panic ends what it happened in, not the process",
	"protocol/protocoltest Replay recover":   "an implementation that is judged may panic: that is its answer",
	"protocol/protocoltest runWorld recover": "the same",

	"protocol intake.check recover":           "a panic of an embedder's check is an error of that resource, which the NACK says",
	"protocol/protocoltest runServed recover": "the same of a client that is judged: a panic is its answer",

	"internal/admin Server once":             "makes the doors of all addresses",
	"internal/admin Server mutex":            "how many large answers each connection has; held for memory only",
	"internal/admin waiting.look goroutine":  "asks streams how they stand, four at a time; ends with that look",
	"internal/admin waiting.look mutex":      "what they say; held for memory only",
	"internal/admin waiting.run clock":       "what a look costs",
	"internal/admin waiting.run timer":       "looks again though nobody rings, and not for each answer of a thousand",
	"internal/admin Server.survey goroutine": "asks other servers while this one is asked; ends with the request",
	"internal/admin Server.wait clock":       "who waits long may be answered late",
	"internal/admin Server.reload clock":     "the same of who reloads",
	"internal/admin door.wait timer":         "who comes while too much is under way waits a while",
	"internal/admin eventWriter.idle clock":  "when a comment is due",
	"internal/admin eventWriter.flush clock": "when a write has taken too long",

	"internal/admin feed.run goroutine":  "reads while what came before is written; ends before its request",
	"internal/admin feed.run clock":      "when what was done last had begun",
	"internal/admin feed.run timer":      "what comes fast is done together",
	"internal/admin feed.expect clock":   "until when the next line or message must come",
	"internal/admin Server.commit clock": "who commits much may take longer than for other requests",
	"internal/admin steady.Read clock":   "when a commit has come too slowly",
	"internal/admin slowly.Write clock":  "when a write of a long answer has taken too long",
	"internal/admin feed.answer clock":   "until when its answer must be taken",

	"internal/endpoints DiskShadow mutex":           "what the disk does not have yet; held for memory only",
	"internal/endpoints DiskShadow.Watch goroutine": "writes what was told to the disk, and keeps its journal short; they end with Watch",
	"internal/endpoints DiskShadow.Watch mutex":     "what comes from the disk is told before anything else is, or never",
	"internal/endpoints DiskShadow.run timer":       "when the disk is told, and how often it is written",
	"internal/endpoints Local mutex":                "what is registered, and who waits for the disk; one of them is held while that writes, by who commits for all",
	"internal/endpoints Open clock":                 "leases begin anew at a start",
	"internal/endpoints Local.Grant clock":          "when a lease ends",
	"internal/endpoints Local.Renew clock":          "the same",
	"internal/endpoints Local.Watch clock":          "the same",
	"internal/endpoints Local.Watch timer":          "wakes Watch when the next lease ends",
	"internal/endpoints Local.end clock":            "which leases have ended",
	"internal/endpoints Registry mutex":             "what is registered, for who asks; held for memory only, and while what has changed is put into the store",
	"internal/endpoints Registry.Run goroutine":     "puts what has changed into the store; ends with Run",
	"internal/endpoints Registry.serve timer":       "what changes meanwhile is served together; and how often the log is told",
	"internal/endpoints Session.KeepAlive clock":    "when a lease is due",
	"internal/endpoints Session.write clock":        "the same",

	"internal/endpoints/etcd Engine mutex":            "what was told, for who has written; held for memory only",
	"internal/endpoints/etcd Engine.commit goroutine": "transactions of one write are under way together: an etcd syncs its disk once for them; commit waits for all",
	"internal/endpoints/etcd Engine.Revoke goroutine": "leases are ended together; Revoke waits for all",
	"internal/endpoints/etcd Engine.commit mutex":     "the newest revision of these",
	"internal/endpoints/etcd Engine.await timer":      "nobody waits for ever until a watch has told of a write",
	"internal/endpoints/etcd Engine.Watch timer":      "a watch that ended begins anew a little later",

	"internal/cluster/revisions Open clock":                         "the default clock, which Options.Now replaces: when a revision was made",
	"internal/cluster/revisions each goroutine":                     "reads and writes eight values at once; whoever calls it waits for them",
	"internal/cluster/revisions loader.read mutex":                  "the pages that these have read; held for memory only",
	"internal/cluster/revisions Repository.rest timer":              "looks for a newer revision though nobody rings",
	"internal/cluster/revisions/file within goroutine":              "a call of a disk that may not answer: whoever calls does not wait for it without end; there are 64 at most",
	"internal/cluster/revisions/file Engine.lock timer":             "waits for another program's swap",
	"internal/cluster/revisions/file Engine.clean clock":            "whether a file was left by a program that was killed",
	"internal/cluster/revisions/file Engine.Watch goroutine":        "hears of changes; ends with its context",
	"internal/cluster/revisions/file Engine.Watch timer":            "looks though the system says nothing",
	"internal/cluster/revsource Refusals mutex":                     "what clients refuse; held for memory only",
	"internal/cluster/revsource Refusals.move clock":                "when a client has refused something",
	"internal/cluster/revsource Refusals.same clock":                "what is too old to be remembered",
	"internal/cluster/revsource Refusals.sync clock":                "what is too old to be remembered",
	"internal/cluster/revsource wait timer":                         "a write a second, and a look though nobody rings",
	"internal/cluster/revsource asks mutex":                         "what is asked of the repository; held for memory only",
	"internal/cluster/revsource asks.join goroutine":                "reads the head for all who ask at once; ends within 2 s of the last of them",
	"internal/cluster/revsource Source.readHead goroutine":          "a read of the head by an engine that may not end with its context; one at a time",
	"internal/cluster/revsource asks.answer clock":                  "since when nobody knows what is the newest",
	"internal/cluster/rollout Runner mutex":                         "what is served; held for memory only",
	"internal/cluster/rollout Runner.say goroutine":                 "says how clients take a rollout; ends with it",
	"internal/cluster/rollout Runner.say timer":                     "says it again a little later if it could not",
	"internal/cluster/rollout Runner.Run goroutine":                 "waits for those that say how clients take a rollout",
	"internal/cluster/rollout Runner.Run clock":                     "how long a look takes",
	"internal/cluster/rollout Runner.Run timer":                     "looks at clients and store while a rollout is under way",
	"internal/cluster/rollout driver.drive clock":                   "when the lease was to be had last",
	"internal/cluster/rollout driver.decide clock":                  "how long a step is good, and when it came",
	"internal/cluster/rollout Steering.Freeze clock":                "when somebody wanted it",
	"internal/cluster/rollout Steering.Unfreeze clock":              "the same",
	"internal/cluster/rollout Steering.StartRollout clock":          "the same",
	"internal/cluster/rollout Steering.ChangeRollout clock":         "the same",
	"internal/cluster/peers Replicas mutex":                         "who is there, for all who ask; held for memory only",
	"internal/cluster/peers Replicas.Run goroutine":                 "announces this server while it looks who else is there; ends with its context",
	"internal/cluster/peers Replicas.announce goroutine":            "says what has changed of this server; ends with the announcement",
	"internal/cluster/peers Replicas.look clock":                    "when it was read who is there",
	"internal/cluster/peers Replicas.Streams clock":                 "how old is what is known of others",
	"internal/cluster/peers Replicas.note clock":                    "when a server has answered last",
	"internal/cluster/peers Replicas.others clock":                  "how old is what is known of the store",
	"internal/cluster/peers Replicas.Ask goroutine":                 "asks all servers at once; ends within a second",
	"internal/cluster/peers Replicas.Ask mutex":                     "one answer at a time is read",
	"internal/cluster/peers pause timer":                            "looks and says from time to time",
	"internal/cluster/revisions/etcd Engine.Watch goroutine":        "hears of changes; ends with its context",
	"internal/cluster/revisions/etcd Engine.Watch timer":            "a watch that ended begins anew a little later",
	"internal/cluster/revisions/etcd Engine.Lease goroutine":        "tells that a lease is lost; ends with it",
	"internal/cluster/revisions/enginetest announcements goroutine": "programs that say that they are there; end with the test",
	"internal/cluster/revisions/enginetest announcements timer":     "no test waits for ever",
	"internal/cluster/revisions/enginetest watching goroutine":      "a watch while values are damaged; ends with the test",
	"internal/cluster/revisions/enginetest histories clock":         "a seed",
	"internal/cluster/revisions/enginetest swaps goroutine":         "programs that swap at once; end with the test",
	"internal/cluster/revisions/enginetest writers goroutine":       "the same of those that commit",
	"internal/cluster/revisions/enginetest writers mutex":           "what they have made; held for memory only",
	"internal/cluster/revisions/enginetest sweeps goroutine":        "the same, with those that read and sweep",
	"internal/cluster/revisions/enginetest sweeps timer":            "a pause between sweeps",
	"internal/cluster/revisions/enginetest watches timer":           "no test waits for ever",
	"internal/cluster/revisions/enginetest Floors clock":            "what it measures",

	"internal/endpoints/dns Watcher.Run goroutine": "asks servers, as many at once as are allowed; Run waits for them",
	"internal/endpoints/dns Watcher.Run clock":     "the time that the book is told",
	"internal/endpoints/dns Watcher.Run timer":     "when the next question is due",

	"internal/endpoints/register Registrar mutex":             "what owners want; held for memory only",
	"internal/endpoints/register rest timer":                  "a pause before the server is asked again",
	"internal/endpoints/register Registrar.session timer":     "no server is waited for for ever",
	"internal/endpoints/register Registrar.session goroutine": "receives answers; the session waits for it",
	"internal/endpoints/register session.run timer":           "when the lease is to be renewed, and when what was not taken is sent again",
	"internal/endpoints/register session.send timer":          "no server is waited for for ever",

	"internal/envoy/export wait timer": "waits between two steps of an export, so that Envoy reads the first one",
}

// Uses of other packages that are effects.
var effectOf = map[string]string{
	"time.Now": "clock", "time.Since": "clock", "time.Until": "clock", "time.Sleep": "timer",
	"time.After": "timer", "time.AfterFunc": "timer", "time.NewTimer": "timer", "time.NewTicker": "timer", "time.Tick": "timer",
	"sync.Mutex": "mutex", "sync.RWMutex": "mutex", "sync.Once": "once", "sync.Map": "mutex", "sync.WaitGroup": "goroutine",
}

// Goroutines, clocks, locks and recovers are few, and each is known with its reason.
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
			t.Errorf("%s: %q is not listed; if it must be, list it with its reason", strings.Join(found[effect], ", "), effect)
		}
	}
	for effect := range effects {
		if found[effect] == nil {
			t.Errorf("%q is listed but is no more", effect)
		}
	}
}

// effectsIn adds the effects in a file to found: where they stand, by package,
// declaration and kind.
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

// declared returns the names that a declaration declares and where each stands.
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
