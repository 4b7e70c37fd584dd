package quarantine

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// An answer is an ACK or NACK that must be examined.
type answer struct {
	st      *server.Stream
	typ     *xds.Type
	text    string
	refused bool // the answer is a NACK
	unknown bool // an earlier examination has not found the faulty resource
}

// shortText returns the part of the error text that is kept with a resource in quarantine.
func (a *answer) shortText() string {
	return strings.ToValidUTF8(strings.Clone(a.text[:min(len(a.text), maxKept)]), "")
}

// examine handles one answer of a client.
func (s *Source) examine(ctx context.Context, w *Watch, a answer) {
	for _, h := range w.takeNews() {
		if s.opts.Told != nil {
			s.opts.Told(h, a.st)
		}
	}
	w.showAgain()
	refusedAgain := s.endRetry(ctx, w, a)
	switch x := w.searchOf(a.typ); {
	case x != nil:
		s.proceed(ctx, w, x)
	case a.refused && !refusedAgain: // otherwise the faulty resource is known
		s.judge(ctx, w, a)
		if a.unknown { // the answer had a turn to search; if no search began, another stream gets the turn
			s.reexamine(s.searches.turns())
		}
	}
}

// judge finds the faulty resources of a refusal and puts them into quarantine. A text that names some resources
// does not clear the others: Envoy stops at the first fault. So after maxNamed refusals, judge also replaces all
// versions that no client accepted, see alsoFaulty. This costs one lookup for each resource and no search, and one
// response instead of one for each fault.
func (s *Source) judge(ctx context.Context, w *Watch, a answer) {
	var blame Blame
	var k verdictKey
	refusals := 0
	if !a.unknown {
		var ok bool
		k, ok = s.verdictKey(ctx, a)
		if !ok {
			return
		}
		refusals = w.countRefusal(time.Now())
		blame = s.verdicts.find(k, time.Now())
		if len(blame.Names) == 0 {
			if refusals > maxExams {
				return
			}
			within, cancel := context.WithTimeout(ctx, examTimeout)
			defer cancel()
			blame = s.opts.Guilty(within, a.st, a.typ, a.text)
		}
	}
	names, known, text := map[string]bool{}, w.ofType(a.typ), a.shortText()
	for _, name := range blame.Names {
		names[name] = true
	}
	var put, others, needs []held
	if s.inspect(ctx, a.st, func(session *protocol.Session) {
		for n := range session.NameStates(a.typ) {
			h, ok := suspect(a.st, a.typ, &n)
			earlier := ok && h.original(known)
			switch {
			case !ok:
			case names[h.name] && (blame.Named || !earlier) && !w.isCleared(&h):
				h.text = text
				put = append(put, h)
			case len(others) <= maxSuspects:
				others = append(others, h)
			}
		}
		if len(put) > 0 {
			needs = dependents(session, a.typ, put)
		} else {
			needs = dependents(session, a.typ, others)
		}
	}) != nil {
		return
	}
	switch {
	case len(put) > 0 && w.allAccepted(put) && w.putUnaccepted(a, others, needs, true):
	case len(put) > 0:
		v := Blame{Named: blame.Named, More: blame.More}
		for i := range put {
			v.Names = append(v.Names, put[i].name)
		}
		put[0].proven = put[0].proven || len(put) == 1 && len(others) == 0 // an ACK would not prove more: nothing is sent
		s.verdicts.add(k, v, time.Now())
		level := (refusals - 1) / maxNamed
		if !blame.Named || blame.More {
			level = max(level, 1)
		}
		put = append(put, w.alsoFaulty(a, others, level)...)
		w.order(order{typ: a.typ, add: append(put, needs...)})
	case w.moving(): // the client will soon be shown another view
	case len(others) == 1 && !w.unprovenIn(a.typ): // the only suspect is the faulty resource
		others[0].by, others[0].proven, others[0].text = Found, true, text
		w.order(order{typ: a.typ, add: append(others, needs...)})
	case w.putUnaccepted(a, others, needs, false):
	default:
		cleared := w.clearUnproven(a.typ)
		searched := a.st.Variant == xds.Delta && s.search(w, a, append(others, cleared...))
		if !searched && len(cleared) > 0 { // the client refused the other resources also without the cleared ones
			w.order(order{typ: a.typ, drop: (*held).unproven})
		}
	}
}

// alsoFaulty returns the new resources that have an earlier version, and whose version was accepted by no client
// (from level 1), by no client of the same kind (from level 2), or by any (from level 3).
func (w *Watch) alsoFaulty(a answer, suspects []held, level int) (all []held) {
	e := w.evidence.Load()
	if e == nil || level == 0 || len(suspects) > maxSuspects {
		return nil
	}
	text := a.shortText()
	for _, h := range suspects {
		if !isNew(h) || h.alsoRefused != [evidence.MaxBack]xds.Sum{} || w.isCleared(&h) {
			continue
		}
		accepted, alike := e.Accepted(h.typ, h.name, h.refused, w.agent)
		if level == 1 && accepted || level == 2 && alike || len(w.before(&h)) == 0 {
			continue
		}
		h.by, h.text = Unaccepted, text
		all = append(all, h)
	}
	return all
}

// showAgain shows a resource again that the client refused, if the resource refers to another in quarantine, and
// the client has since accepted a version of that one which other clients accepted. Example: a listener that
// Envoy refused because its cluster was missing. Each version is retried once.
func (w *Watch) showAgain() {
	w.mu.Lock()
	var again []held
	for _, h := range w.holds {
		if w.waits(&h) && len(w.exam.shownAgain) < maxHeld && w.exam.shownAgain[h.key()] != h.refused {
			if w.exam.shownAgain == nil {
				w.exam.shownAgain = map[key]xds.Sum{}
			}
			w.exam.shownAgain[h.key()] = h.refused
			again = append(again, h)
		}
	}
	w.mu.Unlock()
	for _, h := range again {
		w.order(order{typ: h.typ, drop: func(o *held) bool { return o.name == h.name && o.refused == h.refused }})
	}
}

// waits reports whether a resource without a replacement refers to one whose replacement the client has
// accepted. The watch is locked.
func (w *Watch) waits(h *held) bool {
	return h.old == nil && h.by != Dependent && h.body != nil && slices.ContainsFunc(w.holds, func(o held) bool {
		return o.others && o.proven && refers(h.body.Stamp, map[key]bool{o.key(): true})
	})
}

// allAccepted reports whether other clients have accepted all of these versions, and this client no version
// of the resources. Then the fault may be in a version with which they conflict, such as a listener with
// the same address.
func (w *Watch) allAccepted(named []held) bool {
	e := w.evidence.Load()
	return e != nil && !slices.ContainsFunc(named, func(h held) bool {
		accepted, _ := e.Accepted(h.typ, h.name, h.refused, w.agent)
		return h.has || !accepted || h.alsoRefused != [evidence.MaxBack]xds.Sum{}
	})
}

// putUnaccepted puts the versions that no client has accepted into quarantine, after a refusal whose text
// names no resource (HEAL-3). If clients have accepted all, it takes the versions that no client of the same
// kind has accepted. It does nothing without evidence, unless known is set: then there is evidence about
// another resource of the refusal.
func (w *Watch) putUnaccepted(a answer, suspects, needs []held, known bool) bool {
	e := w.evidence.Load()
	if e == nil || !slices.ContainsFunc(suspects, isNew) || len(suspects) > maxSuspects {
		return false
	}
	var byNone, tried, byOtherKind []held
	any, same := known, false // clients have accepted a version of a suspect
	holds, text := w.ofType(a.typ), a.shortText()
	for _, h := range suspects {
		if o, is := holds[h.name]; w.isCleared(&h) || is && o.old == nil && o.by != Dependent && o.refused == h.refused { // not sent
			continue
		}
		h.by, h.text, h.applied = Unaccepted, text, known
		accepted, alike := e.Accepted(a.typ, h.name, h.refused, w.agent)
		before := len(w.before(&h)) > 0
		any, same = any || isNew(h) && (accepted || before), same || alike
		switch {
		case h.alsoRefused != [evidence.MaxBack]xds.Sum{}: // the client got a version that others accepted
			tried = append(tried, h)
		case !accepted:
			byNone = append(byNone, h)
		}
		if !alike {
			byOtherKind = append(byOtherKind, h)
		}
	}
	if len(byNone) == 0 && !known {
		byNone = tried
	}
	switch {
	case len(byNone) > 0 && any:
		w.order(order{typ: a.typ, add: append(byNone, needs...)})
	case len(byNone) == 0 && len(byOtherKind) > 0 && same:
		w.order(order{typ: a.typ, add: append(byOtherKind, needs...)})
	default:
		return false
	}
	return true
}

// suspect returns a refused resource. ok reports whether it may be faulty: it is new to the client, or
// differs from the version that the client accepted last.
func suspect(st *server.Stream, t *xds.Type, n *protocol.NameState) (h held, ok bool) {
	if n.State != protocol.StateRefused || n.View == nil {
		return h, false // the resource is not refused, or has changed since its refusal
	}
	h = held{typ: t, name: n.Name, refused: n.View.Sum, version: n.View.Version, nonce: protocol.ParseNonce(n.RefusedIn)}
	h.hidden = st.Variant == xds.SotW && t.FullState && !judgesEach(st.Node)
	if n.Held != nil {
		h.had, h.hadVersion, h.has = n.Held.Sum, n.Held.Version, true
	}
	if n.Held == nil && n.Before != nil { // the client may use the version before
		h.hadVersion, h.has = n.Before.Version, true
	}
	return h, !h.has || !h.hadIs(n.View)
}

// judgesEach reports whether a client judges each resource of a response by itself, and applies the others.
// That is so for gRPC in all languages. Their user agent names begin with "gRPC" or "grpc".
func judgesEach(n *xds.Node) bool {
	return n != nil && strings.HasPrefix(strings.ToLower(n.UserAgentName), "grpc")
}

// verdicts cache the faulty resources of a refusal, because many clients refuse the same content with the
// same text. The key has the text and all refused content. A verdict depends on nothing else, so one
// client cannot decide for another. The zero value is empty.
type verdicts struct {
	mu    sync.Mutex // held for memory access only
	all   map[verdictKey]verdict
	added []verdictKey // oldest first
}

type verdict struct {
	Blame
	until time.Time
}

type verdictKey [16]byte

const (
	verdictTime = 10 * time.Second // validity of a verdict
	maxVerdicts = 1000             // number of verdicts
)

// verdictKey returns a digest of a type, an error text, and the names and content of the refused
// resources. A digest has a fixed size, while clients determine the length of the text.
func (s *Source) verdictKey(ctx context.Context, a answer) (k verdictKey, ok bool) {
	var all []string
	if s.inspect(ctx, a.st, func(session *protocol.Session) {
		for n := range session.NameStates(a.typ) {
			if n.State == protocol.StateRefused && n.View != nil {
				all = append(all, n.Name+"\x00"+n.View.Sum.String()+"\x00")
			}
		}
	}) != nil {
		return k, false
	}
	return verdictOf(a, all), true
}

func verdictOf(a answer, refused []string) (k verdictKey) {
	slices.Sort(refused)
	h := sha256.New()
	for _, is := range append([]string{a.typ.URL + "\x00", a.text + "\x00"}, refused...) {
		h.Write([]byte(is))
	}
	copy(k[:], h.Sum(nil))
	return k
}

func (vs *verdicts) find(k verdictKey, now time.Time) (b Blame) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.all[k]; now.Before(v.until) {
		b = v.Blame
	}
	return b
}

func (vs *verdicts) add(k verdictKey, b Blame, now time.Time) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.all == nil || len(vs.all) >= maxVerdicts {
		vs.room()
	}
	if _, known := vs.all[k]; !known {
		vs.added = append(vs.added, k)
	}
	vs.all[k] = verdict{b, now.Add(verdictTime)}
}

// room makes room for one verdict: it removes only the oldest, so that recent verdicts stay.
func (vs *verdicts) room() {
	if vs.all == nil {
		vs.all = map[verdictKey]verdict{}
		return
	}
	delete(vs.all, vs.added[0])
	vs.added = vs.added[1:]
}
