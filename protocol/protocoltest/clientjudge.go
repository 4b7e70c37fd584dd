package protocoltest

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A clientJudge computes independently which resources a client must hold, and what the client must
// request and report. The judge sees the inputs and outputs of the client, and computes everything
// again at each step. It has no indexes, and shares no code with the client.
type clientJudge struct {
	*served
	opts    protocol.ClientOptions
	types   map[string]*clientAccount
	met     map[string]bool // streams on which the node was sent
	timeout time.Duration   // negative: no timeout
}

// A clientAccount is the account of one type.
type clientAccount struct {
	typ             *xds.Type
	subscribed      map[string]bool
	requested       map[string]bool // names of the requests of this stream
	held            map[string]*xds.Resource
	ends            map[string]time.Time // of TTLs
	unknownToServer map[string]bool      // held, but unknown to the server
	doubt           map[string]bool      // held, and to be checked again

	subscribers map[string]*subscriber
	refusals    map[string]map[string]bool // names that match a bad resource of the last response, by subscribed name and by resource
	ended       map[string]bool            // not held, and reported as removed by the last response
	nothing     map[string]bool            // reported as absent, or lost
	waits       map[string]time.Time       // when a wait for the name ends
	late        map[string]bool            // names whose wait ends now

	opened   bool
	nonce    string
	version  string // last accepted
	verdicts []dueAnswer
}

// A subscriber has the reports to the application for one subscribed name, by name of the resource.
type subscriber struct {
	seen    map[string]*xds.Resource
	errors  map[string]string // errors since the resource was last reported
	refused map[string]bool   // refusals that nothing has ended yet
	again   map[string]bool   // may be reported although the name knows the resource: it was adopted, or reported to other names
}

// forgets ends the errors of a resource, and reports whether the resource had any.
func (k *subscriber) forgets(name string) bool {
	was := k.knows(name)
	delete(k.errors, name)
	delete(k.refused, name)
	delete(k.again, name)
	return was
}

// knows reports whether an error of a resource was reported, or need not be.
func (k *subscriber) knows(name string) bool { return k.errors[name] != "" || k.again[name] }

// hears records that a name matches a resource. That ends an error of the name itself, unless its own resource
// was refused or is held.
func (k *subscriber) hears(name, found string) (was bool) {
	was = k.forgets(found)
	if !k.refused[name] && k.seen[name] == nil {
		was = was || k.errors[name] != ""
		delete(k.errors, name)
	}
	return was
}

// A dueAnswer is an answer that is due.
type dueAnswer struct {
	nonce, version string
	bad            bool
}

func newClientJudge(w *served, opts protocol.ClientOptions) *clientJudge {
	j := &clientJudge{served: w, opts: opts, types: map[string]*clientAccount{}, met: map[string]bool{}, timeout: opts.Timeout}
	if j.timeout == 0 {
		j.timeout = 15 * time.Second
		if opts.Transient {
			j.timeout = 30 * time.Second
		}
	}
	for _, k := range servedKinds {
		j.types[k.typ.URL] = &clientAccount{typ: k.typ, subscribed: map[string]bool{}, requested: map[string]bool{}, held: map[string]*xds.Resource{}, ends: map[string]time.Time{},
			unknownToServer: map[string]bool{}, doubt: map[string]bool{}, subscribers: map[string]*subscriber{}, nothing: map[string]bool{}, waits: map[string]time.Time{}}
	}
	return j
}

func (j *clientJudge) of(t *xds.Type) *clientAccount { return j.types[t.URL] }

func keys(m map[string]bool) iter.Seq[string] { return maps.Keys(m) }

// finding reports whether one of the names matches a resource, other than except.
func (j *clientJudge) finding(a *clientAccount, names map[string]bool, r *xds.Resource, except string) bool {
	for s := range finders(j.cfg.Variant, a.typ, r) {
		if names[s] && s != except {
			return true
		}
	}
	return false
}

// finds returns the held resources that a name matches.
func (j *clientJudge) finds(a *clientAccount, name string) map[string]*xds.Resource {
	out := map[string]*xds.Resource{}
	for n, r := range a.held {
		if slices.Contains(slices.Collect(finders(j.cfg.Variant, a.typ, r)), name) {
			out[n] = r
		}
	}
	return out
}

// subscribe records a subscription. Held resources, and resources known to be bad or absent, are
// not reported again.
func (j *clientJudge) subscribe(t *xds.Type, name string) {
	a := j.of(t)
	if a.subscribed[name] {
		return
	}
	a.subscribed[name] = true
	k := &subscriber{seen: j.finds(a, name), errors: map[string]string{}, refused: map[string]bool{}, again: maps.Clone(a.unknownToServer)}
	a.subscribers[name] = k
	for s := range j.client.States(t) {
		if s.Err != nil && (s.Name == name || a.requested[name] || a.held[s.Name] != nil) {
			k.again[s.Name] = true
		}
	}
	delete(a.nothing, name)
	if j.client.State(t, name).Status == protocol.DoesNotExist {
		a.nothing[name] = true
	}
}

func (j *clientJudge) unsubscribe(t *xds.Type, names ...string) {
	a := j.of(t)
	for _, name := range names {
		delete(a.subscribed, name)
		delete(a.subscribers, name)
		if !a.opened {
			j.untold(a, name)
		}
	}
	j.prune(a)
}

func (j *clientJudge) untold(a *clientAccount, name string) {
	delete(a.requested, name)
	delete(a.waits, name)
}

// prune drops resources that no subscription matches, as far as the server knows.
func (j *clientJudge) prune(a *clientAccount) {
	for n, r := range a.held {
		if !j.finding(a, a.requested, r, "") && !j.finding(a, a.subscribed, r, "") {
			j.lose(a, n)
		}
	}
}

func (j *clientJudge) lose(a *clientAccount, name string) {
	delete(a.doubt, name)
	delete(a.held, name)
	delete(a.ends, name)
	delete(a.unknownToServer, name)
}

func (j *clientJudge) adopts(t *xds.Type, own bool, r *xds.Resource) {
	a := j.of(t)
	if a.held[r.Name] != nil || !j.finding(a, a.subscribed, r, "") {
		return
	}
	j.hold(a, r)
	a.unknownToServer[r.Name] = !own
	if own {
		delete(a.unknownToServer, r.Name)
	}
	for s := range finders(j.cfg.Variant, t, r) {
		delete(a.waits, s)
		if k := a.subscribers[s]; k != nil {
			delete(a.nothing, s)
			k.hears(s, r.Name)
			k.seen[r.Name] = r
			if !own {
				k.again[r.Name] = true
			}
		}
	}
}

// doubts records that everything of a type must be sent and checked again.
func (j *clientJudge) doubts(t *xds.Type) {
	a := j.of(t)
	for n := range a.held {
		a.doubt[n], a.unknownToServer[n] = true, true
	}
	for _, k := range a.subscribers {
		for n := range k.seen {
			k.again[n] = true
		}
	}
}

func (j *clientJudge) hold(a *clientAccount, r *xds.Resource) {
	a.held[r.Name] = r
	delete(a.doubt, r.Name)
	delete(a.unknownToServer, r.Name)
	delete(a.ends, r.Name)
	if r.TTL > 0 {
		a.ends[r.Name] = j.now.Add(r.TTL)
	}
}

func (j *clientJudge) connected(only *xds.Type) { j.disconnected(only) }

func (j *clientJudge) disconnected(only *xds.Type) {
	for url, a := range j.types {
		if only != nil && url != only.URL {
			continue
		}
		delete(j.met, url)
		a.opened, a.nonce, a.verdicts = false, "", nil
		clear(a.waits)
		for n := range a.requested {
			if !a.subscribed[n] {
				j.untold(a, n)
			}
		}
		j.prune(a)
	}
	if only == nil {
		clear(j.met)
	}
}

// checkRequest checks a request.
func (j *clientJudge) checkRequest(r xds.Request) {
	a := j.of(r.Type)
	j.checkStream(r)
	first := !a.opened
	answers := len(a.verdicts) > 0
	due := j.checkDue(a, r)
	before := maps.Clone(a.requested)
	if j.cfg.Variant == xds.SotW {
		j.checkSotW(a, r, first, due)
		a.version = r.Version
		if answers {
			a.version = due.version
		}
	} else {
		j.checkDelta(a, r, first, answers)
	}
	a.opened = true
	for n := range a.requested {
		if (first || !before[n]) && j.waits(a, n) {
			a.waits[n] = j.now.Add(j.timeout)
		}
	}
	for n := range before {
		if !a.requested[n] {
			j.untold(a, n)
		}
	}
	j.prune(a)
}

// waits reports whether the client waits for the resource of a requested name.
func (j *clientJudge) waits(a *clientAccount, n string) bool {
	return n != xds.Wildcard && j.timeout >= 0 && !a.nothing[n] && len(j.finds(a, n)) == 0 && j.client.State(a.typ, n).Status == protocol.Requested
}

// checkStream checks that a request has a stream, and the node if it is the first one of it.
func (j *clientJudge) checkStream(r xds.Request) {
	stream := ""
	if j.perType {
		stream = r.Type.URL
	}
	switch {
	case !j.streams[stream]:
		j.fail("%s: a request without a stream", r.Type)
	case (r.Node != nil) == j.met[stream]:
		j.fail("CLI-4: the node must be in the first request of a stream, and in no other")
	}
	j.met[stream] = true
}

// checkDue checks that a request is the answer that is due, if any, and returns that.
func (j *clientJudge) checkDue(a *clientAccount, r xds.Request) dueAnswer {
	due := dueAnswer{nonce: a.nonce, version: a.version}
	if j.cfg.Variant == xds.Delta {
		due = dueAnswer{}
	}
	if len(a.verdicts) > 0 {
		due, a.verdicts = a.verdicts[0], a.verdicts[1:]
	}
	if r.Nonce != due.nonce || (r.Error != nil) != due.bad {
		j.fail("CLI-2, CLI-14: %s: nonce %q with NACK %v, want %q with %v", r.Type, r.Nonce, r.Error != nil, due.nonce, due.bad)
	}
	if r.Error != nil && (r.Error.Message == "" || r.Error.Code == 0) {
		j.fail("CLI-2: a NACK without an error message or code")
	}
	return due
}

// checkSotW checks the version of a request, and records its names.
func (j *clientJudge) checkSotW(a *clientAccount, r xds.Request, first bool, due dueAnswer) {
	switch {
	case r.Version != due.version && (!first || r.Version != ""):
		j.fail("CLI-2: %s: version %q, the last accepted is %q", r.Type, r.Version, due.version)
	case first && len(a.verdicts) > 0:
		j.fail("the first request of a stream is an answer")
	}
	all := map[string]bool{xds.Wildcard: true}
	implied := first || a.requested[xds.Wildcard] && maps.Equal(a.subscribed, all)
	switch {
	case len(r.Names) > 0 || !implied:
		a.requested = setOf(r.Names)
	case first:
		a.requested = all
	}
}

// checkDelta checks that a request changes the subscriptions or answers, and records them.
func (j *clientJudge) checkDelta(a *clientAccount, r xds.Request, first, answers bool) {
	switch {
	case first:
		a.requested = map[string]bool{}
		if len(r.Subscribe) == 0 {
			a.requested[xds.Wildcard] = true
		}
		j.checkStates(a, r)
	case len(r.Initial) > 0:
		j.fail("CLI-4: initial_resource_versions in a later request")
	case !answers && len(r.Subscribe)+len(r.Unsubscribe) == 0:
		j.fail("%s: an empty request", r.Type)
	}
	for _, n := range r.Subscribe {
		if a.requested[n] {
			j.fail("%s: %s is subscribed to twice", r.Type, n)
		}
		a.requested[n] = true
	}
	for _, n := range r.Unsubscribe {
		delete(a.requested, n)
	}
}

// checkStates checks the initial_resource_versions of a client.
func (j *clientJudge) checkStates(a *clientAccount, r xds.Request) {
	want := map[string]string{}
	for n, x := range a.held {
		want[n] = x.Version
		if a.unknownToServer[n] {
			want[n] = ""
		}
	}
	got := map[string]string{}
	for _, v := range r.Initial {
		got[v.Name] = v.Version
	}
	if !maps.Equal(got, want) {
		j.fail("CLI-4: %s: it states %v, want %v", r.Type, got, want)
	}
}

// checkAllSent checks the client when it has nothing more to send.
func (j *clientJudge) checkAllSent() {
	for url, a := range j.types {
		if len(a.verdicts) > 0 {
			j.fail("CLI-2: %s: %d responses are not answered", a.typ, len(a.verdicts))
		}
		if !j.streams[""] && !j.streams[url] || !a.opened && len(a.subscribed) == 0 {
			continue
		}
		if !maps.Equal(a.requested, a.subscribed) {
			j.fail("%s: the server knows the subscriptions %v, want %v", a.typ, slices.Sorted(keys(a.requested)), slices.Sorted(keys(a.subscribed)))
		}
	}
}

// receive records a response.
func (j *clientJudge) receive(r *xds.Response, err error) {
	var a *clientAccount
	if r.Type != nil {
		a = j.types[r.Type.URL]
	}
	if a == nil || !a.opened {
		if err != nil {
			j.fail("a response of a type that was not requested is refused: %v", err)
		}
		return
	}
	bad := j.apply(a, r)
	if bad != (err != nil) {
		j.fail("CLI-2: %s nonce %s: the error is %v, want one: %v", r.Type, r.Nonce, err, bad)
	}
	a.nonce = r.Nonce
	if !bad {
		a.version = r.Version
	}
	v := dueAnswer{nonce: r.Nonce, version: a.version, bad: bad}
	if n := len(a.verdicts); n > 0 && bad {
		v.version = a.verdicts[n-1].version
	}
	a.verdicts = append(a.verdicts, v)
}

// apply applies a response to the account, and reports whether it is bad.
func (j *clientJudge) apply(a *clientAccount, r *xds.Response) (bad bool) {
	a.refusals, a.ended = map[string]map[string]bool{}, map[string]bool{}
	c := cmp.Or(r.Changes, &xds.Changes{})
	met, bad := j.applyUpserts(a, c)
	stays := map[string]bool{}
	for _, x := range c.Beats {
		stays[x.Name] = true
		bad = j.beat(a, x) || bad
	}
	gone := slices.Concat(c.Removed, c.Absent)
	for i, n := range gone {
		if !met[n] && !slices.Contains(gone[:i], n) {
			j.remove(a, n)
		}
	}
	for _, e := range r.Errors {
		stays[e.Name] = true
	}
	onlyBeats := len(c.Upserts) == 0 && len(c.Beats) > 0
	if j.cfg.Variant == xds.SotW && a.typ.FullState && len(r.Malformed) == 0 && !onlyBeats {
		j.removeRest(a, func(n string) bool { return met[n] || stays[n] })
	}
	j.applyErrors(a, c.Missing, r.Errors)
	return bad || len(r.Malformed) > 0
}

// applyUpserts applies the resources of a response, and returns their names. Of resources with the same name, the first
// one counts.
func (j *clientJudge) applyUpserts(a *clientAccount, c *xds.Changes) (met map[string]bool, bad bool) {
	met = map[string]bool{}
	for _, x := range c.Upserts {
		if !hasName(x) {
			bad = true
			continue
		}
		first := !met[x.Name]
		met[x.Name] = true
		bad = j.applyUpsert(a, c, x, first) || bad
	}
	return met, bad
}

// applyUpsert applies a resource; first: the first one of its name.
func (j *clientJudge) applyUpsert(a *clientAccount, c *xds.Changes, x *xds.Resource, first bool) (bad bool) {
	old, told := a.held[x.Name], j.finding(a, a.requested, x, "")
	known := old != nil && alikeFor(old, x) && !a.doubt[x.Name]
	unusable := !x.Type.Is(a.typ) || isAmbiguous(c, x.Name) || told && x.Body != nil && j.unfit(x) && !known
	switch {
	case unusable:
		if told && first {
			j.refuse(a, x)
		}
	case !told:
		j.lose(a, x.Name)
	case x.Body == nil:
		return j.beat(a, x)
	default:
		j.hold(a, x)
		for s := range finders(j.cfg.Variant, a.typ, x) {
			delete(a.waits, s)
			delete(a.nothing, s)
		}
	}
	return unusable
}

func hasName(x *xds.Resource) bool {
	return x != nil && x.Stamp != nil && x.Name != "" && x.Name != xds.Wildcard
}

// isAmbiguous reports whether a response has a name twice, or as present and removed.
func isAmbiguous(c *xds.Changes, name string) bool {
	count := 0
	for _, x := range c.Upserts {
		if x != nil && x.Stamp != nil && x.Name == name {
			count++
		}
	}
	return count > 1 || slices.Contains(c.Removed, name)
}

// refuse records that a resource is refused, for each name that it matches.
func (j *clientJudge) refuse(a *clientAccount, x *xds.Resource) {
	if j.opts.DropOnError {
		j.lose(a, x.Name)
	}
	for s := range finders(j.cfg.Variant, a.typ, x) {
		if s == x.Name || len(j.finds(a, s)) == 0 {
			delete(a.waits, s)
		}
		if a.refusals[s] == nil {
			a.refusals[s] = map[string]bool{}
		}
		a.refusals[s][x.Name] = true
	}
}

// removeRest removes what a full-state response lacks.
func (j *clientJudge) removeRest(a *clientAccount, stays func(name string) bool) {
	for n := range maps.Clone(a.held) {
		if !stays(n) {
			j.remove(a, n)
		}
	}
	for _, k := range a.subscribers {
		for n := range k.refused {
			a.ended[n] = a.ended[n] || !stays(n) && a.held[n] == nil
		}
	}
}

// applyErrors applies the names that a response reports as missing, and its errors.
func (j *clientJudge) applyErrors(a *clientAccount, missing []string, errors []xds.ResourceError) {
	for _, n := range missing {
		a.ended[n] = a.held[n] == nil // in the other case the resource of that name is removed, but not other resources that the name matches
		delete(a.waits, n)
		if j.opts.DropOnError {
			j.lose(a, n)
		}
	}
	for _, e := range errors {
		if e.Status.Code == 7 && j.opts.DropOnError {
			j.lose(a, e.Name)
		}
		delete(a.waits, e.Name)
	}
}

// beat applies a heartbeat, and reports whether it is bad: of another version than the client holds.
func (j *clientJudge) beat(a *clientAccount, x *xds.Resource) (bad bool) {
	old := a.held[x.Name]
	switch {
	case old == nil:
		return false
	case j.cfg.Variant == xds.Delta && old.Version != x.Version:
		return true
	case x.TTL > 0:
		a.ends[x.Name] = j.now.Add(x.TTL)
	}
	return false
}

func (j *clientJudge) remove(a *clientAccount, name string) {
	delete(a.waits, name)
	if name == xds.Wildcard {
		return // a wildcard can always match something
	}
	if a.held[name] == nil {
		a.ended[name] = true
		for n, r := range j.finds(a, name) {
			if a.requested[name] && !j.finding(a, a.requested, r, name) {
				j.remove(a, n)
			}
		}
		return
	}
	if j.opts.Retain && !j.opts.DropOnError {
		a.unknownToServer[name] = true
		return
	}
	j.lose(a, name)
}

// expire drops the resources whose TTL has ended.
func (j *clientJudge) expire() {
	for _, a := range j.types {
		for n, at := range a.ends {
			if !at.After(j.now) {
				j.lose(a, n)
			}
		}
	}
}

// compare compares what the client holds and reports with the account.
func (j *clientJudge) compare() {
	for _, a := range j.types {
		a.endWaits(j.now)
	}
	for e := range j.client.Events() {
		j.logf("! %s %s %s %v %v", e.Kind, e.Type, e.Name, e.Asked, e.Err)
		j.checkEvent(j.of(e.Type), e)
	}
	var next time.Time
	for _, a := range j.types {
		j.compareType(a)
		for _, ends := range []map[string]time.Time{a.ends, a.waits} {
			for _, at := range ends {
				next = earlier(next, at)
			}
		}
	}
	if at := j.client.Deadline(); !at.Equal(next) {
		j.fail("the client's deadline is %v, want %v", at.Sub(epoch), next.Sub(epoch))
	}
	if c, ok := any(j.client).(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			j.fail("invariant: %v", err)
		}
	}
}

// endWaits ends the waits whose time has come.
func (a *clientAccount) endWaits(now time.Time) {
	a.late = map[string]bool{}
	maps.DeleteFunc(a.waits, func(n string, at time.Time) bool {
		if !at.After(now) {
			a.late[n] = true
		}
		return a.late[n]
	})
}

// compareType compares the resources of a type, and what its subscribers were given.
func (j *clientJudge) compareType(a *clientAccount) {
	j.checkTimeouts(a)
	held := map[string]*xds.Resource{}
	for r := range j.client.Held(a.typ) {
		held[r.Name] = r
	}
	if !maps.EqualFunc(held, a.held, same) {
		j.fail("%s: the client holds %v, want %v", a.typ, names(held), names(a.held))
	}
	for s, k := range a.subscribers {
		j.checkStatus(a, s, k)
		j.checkKnown(a, s, k)
		if want := j.finds(a, s); !maps.EqualFunc(k.seen, want, alikeFor) {
			j.fail("%s: the subscriber of %s was given %v, the client holds %v", a.typ, s, names(k.seen), names(want))
		}
		if len(k.seen) > 0 && j.client.Lookup(a.typ, s) == nil {
			j.fail("%s: Lookup does not find %s", a.typ, s)
		}
	}
	a.ended, a.refusals = nil, nil
}

// checkTimeouts checks that the end of each wait is reported.
func (j *clientJudge) checkTimeouts(a *clientAccount) {
	for n := range a.late {
		if a.subscribed[n] && j.client.State(a.typ, n).Status == protocol.Requested {
			j.fail("CLI-3: no timeout is reported for %s %s", a.typ, n)
		}
	}
}

// checkKnown checks that the subscriber of a name knows the refused resources that it matches, and knows when a
// refusal ends.
func (j *clientJudge) checkKnown(a *clientAccount, name string, k *subscriber) {
	for n := range a.refusals[name] {
		if !k.knows(n) && !a.ended[n] && !a.ended[name] {
			j.fail("CLI-12: %s: the refusal of %[3]s is not reported to the subscriber of %[2]s", a.typ, name, n)
		}
	}
	for n := range k.refused {
		if a.ended[n] || a.ended[name] && a.requested[name] {
			j.fail("CLI-12: %s: the removal of %[3]s, which was refused, is not reported to the subscriber of %[2]s", a.typ, name, n)
		}
	}
}

// checkStatus checks that the client reports the status of a name as in its events.
func (j *clientJudge) checkStatus(a *clientAccount, name string, k *subscriber) {
	is := j.client.State(a.typ, name).Status
	want := k.errors[name] != "" || len(k.seen) == 0 && len(k.refused) > 0
	if bad := is == protocol.Rejected || is == protocol.ReceivedError; name != xds.Wildcard && bad != want && len(k.again) == 0 {
		j.fail("CLI-12: %s: the status of %s is %s, but its events were %v", a.typ, name, is, k.errors)
	}
}

func alikeFor(a, b *xds.Resource) bool {
	return string(a.Body) == string(b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

func names(m map[string]*xds.Resource) (out []string) {
	for _, n := range slices.Sorted(maps.Keys(m)) {
		out = append(out, show(m[n]))
	}
	return out
}

// checkEvent checks that a change is reported once.
func (j *clientJudge) checkEvent(a *clientAccount, e protocol.ClientEvent) {
	if len(e.Asked) == 0 {
		j.fail("an event without a subscriber: %s %s", e.Kind, e.Name)
	}
	changes := e.Kind == protocol.Updated || e.Kind == protocol.Removed // news for one of the subscribers is enough
	fresh := false
	for _, s := range e.Asked {
		k := a.subscribers[s]
		if k == nil {
			j.fail("%s %s is reported to %s, which is not subscribed", e.Kind, e.Name, s)
		}
		news := j.isNews(a, e, s, k)
		fresh = news || changes && fresh
		if !news && !changes {
			break
		}
		if e.Kind == protocol.Removed || e.Kind == protocol.Absent {
			a.nothing[s] = a.nothing[s] || len(k.seen)+len(k.refused) == 0
		} else {
			delete(a.nothing, s)
		}
	}
	if !fresh {
		j.fail("%s %s %s is reported twice: %v", e.Kind, a.typ, e.Name, e.Err)
	}
}

// isNews records an event for a subscriber, and reports whether it is news for that one.
func (j *clientJudge) isNews(a *clientAccount, e protocol.ClientEvent, s string, k *subscriber) (news bool) {
	switch e.Kind {
	case protocol.Updated:
		news = k.hears(s, e.Name) || k.seen[e.Name] == nil || !alikeFor(k.seen[e.Name], e.Resource)
		k.seen[e.Name] = e.Resource
	case protocol.Removed:
		news = k.seen[e.Name] != nil
		delete(k.seen, e.Name)
		k.forgets(e.Name)
	case protocol.Absent, protocol.TimedOut:
		refused := k.refused[e.Name] || k.again[e.Name]
		news = k.forgets(e.Name) || s == e.Name && !a.nothing[s]
		if news && s == e.Name {
			j.checkAbsent(a, e, k, refused)
		}
	case protocol.Refused, protocol.Errored:
		news = k.fails(e)
	default:
		j.fail("an event of an unknown kind: %v", e)
	}
	return news
}

// fails records an error, and reports whether it is news. Each name gets the report once, and not again because another
// name matches now.
func (k *subscriber) fails(e protocol.ClientEvent) (news bool) {
	news = k.errors[e.Name] != e.Err.Error() || k.again[e.Name]
	k.errors[e.Name] = e.Err.Error()
	if e.Kind == protocol.Refused {
		k.refused[e.Name] = true // an error of the server does not end a refusal
	}
	delete(k.again, e.Name)
	if e.Resource == nil {
		delete(k.seen, e.Name)
	}
	return news
}

// checkAbsent checks an event that reports a name as absent. If the name was refused, it may match another
// resource.
func (j *clientJudge) checkAbsent(a *clientAccount, e protocol.ClientEvent, k *subscriber, refused bool) {
	switch is := k.seen; {
	case !refused && len(is)+len(k.refused) > 0, len(is) > 0 != (e.Resource != nil), e.Resource != nil && !same(is[e.Resource.Name], e.Resource):
		j.fail("CLI-3: %s is reported absent, but matches %v and the refused %v", e.Name, names(is), k.refused)
	case errors.Is(e.Err, protocol.ErrSilent) != a.late[e.Name] || e.Kind == protocol.TimedOut && !j.opts.Transient:
		j.fail("CLI-3: %s is reported absent by a timeout: %v", e.Name, e.Err)
	}
	delete(a.waits, e.Name)
}

// checkAtRest checks what the client holds when an honest server has sent everything: all good resources, and
// nothing else. SotW cannot remove a name of most types.
func (j *clientJudge) checkAtRest() {
	for _, a := range j.types {
		content := j.server.content[a.typ.URL]
		for name, r := range content {
			held := a.held[name]
			right := held == nil && r.TTL > 0 || held != nil && alikeFor(held, r)
			if !right && !j.unfit(r) && j.finding(a, a.subscribed, r, "") {
				j.fail("%s: at rest the server has %s, the client holds %v", a.typ, show(r), names(a.held))
			}
		}
		keeps := j.opts.Retain || j.cfg.Variant == xds.SotW && !a.typ.FullState
		for name, r := range a.held {
			if content[name] == nil && !keeps {
				j.fail("%s: at rest the client holds %s, which was removed", a.typ, show(r))
			}
		}
	}
}

// checkEmpty checks a client without subscriptions: it must hold nothing, whatever it was sent.
func (j *clientJudge) checkEmpty() {
	for _, k := range servedKinds {
		n := 0
		for range j.client.States(k.typ) {
			n++
		}
		for range j.client.Held(k.typ) {
			n++
		}
		if n > 0 || !j.client.Deadline().IsZero() {
			j.fail("%s: a client without subscriptions still knows %d names", k.typ, n)
		}
	}
	if len(j.client.Types()) > len(servedKinds) {
		j.fail("the client knows types that it never subscribed to")
	}
}
