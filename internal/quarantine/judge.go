package quarantine

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// An ask is that a stream's client has answered, and somebody should look at what that means.
type ask struct {
	st      *server.Stream
	typ     *xds.Type
	text    string
	refused bool // it is a NACK
	nobody  bool // nobody knows who is at fault: it was looked for before
	ended   bool // nothing of the type is in quarantine any more
}

// kept is as much of the text as is kept while something is in quarantine for it.
func (a *ask) kept() string {
	return strings.ToValidUTF8(strings.Clone(a.text[:min(len(a.text), maxKept)]), "")
}

// look looks at what a client has answered.
func (s *Source) look(ctx context.Context, w *Watch, a ask) {
	for _, h := range w.takeNews() {
		if s.opts.Told != nil {
			s.opts.Told(h, a.st)
		}
	}
	switch x := w.searchOf(a.typ); {
	case x != nil:
		s.proceed(ctx, w, x)
	case a.refused:
		s.judge(ctx, w, a)
		if a.nobody { // it has waited for a turn, and may have begun nothing
			s.askAgain(s.searches.turns())
		}
	case a.ended && s.opts.Ended != nil:
		_ = s.inspect(ctx, a.st, func(session *protocol.Session) {
			for _, t := range session.States() {
				if t.Type.Is(a.typ) && len(t.Refused)+len(w.held(t.Type)) == 0 {
					s.opts.Ended(a.st, t.Type)
				}
			}
		})
	}
}

// judge finds out who is at fault for a refusal, and puts that into quarantine.
func (s *Source) judge(ctx context.Context, w *Watch, a ask) {
	names := map[string]bool{}
	var k verdictKey
	if !a.nobody {
		var ok bool
		if k, ok = s.verdictKey(ctx, a); !ok {
			return
		}
		v := s.verdicts.find(k, time.Now())
		if len(v) == 0 {
			if !w.mayLook(time.Now()) {
				return
			}
			look, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			v = s.opts.Guilty(look, a.st, a.typ, a.text)
		}
		for _, name := range v {
			names[name] = true
		}
	}
	var put, others, needs []held
	if s.inspect(ctx, a.st, func(session *protocol.Session) {
		for n := range session.NameStates(a.typ) {
			switch h, ok := suspect(a.typ, &n); {
			case !ok:
			case names[h.name] && !w.isCleared(&h):
				h.text = a.kept()
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
	case len(put) > 0:
		var v []string
		for i := range put {
			v = append(v, put[i].name)
		}
		s.verdicts.add(k, v, time.Now())
		w.order(order{typ: a.typ, add: append(put, needs...)})
	case w.moving(): // it is about to be shown another view
	case len(others) == 1 && !w.unprovenIn(a.typ): // nothing else in what was refused was new
		others[0].by, others[0].proven, others[0].text = Found, true, a.kept()
		w.order(order{typ: a.typ, add: append(others, needs...)})
	default:
		cleared := w.clearUnproven(a.typ)
		searched := a.st.Variant == xds.Delta && s.search(w, a, append(others, cleared...))
		if !searched && len(cleared) > 0 { // it has refused the others alone, too
			w.order(order{typ: a.typ, drop: (*held).unproven})
		}
	}
}

// suspect returns a resource that may be at fault for a refusal: it is new, or not what the client
// accepted last.
func suspect(t *xds.Type, n *protocol.NameState) (h held, ok bool) {
	if n.State != protocol.StateRefused || n.View == nil {
		return h, false // it is not refused, or has changed since
	}
	h = held{typ: t, name: n.Name, refused: n.View.Sum, version: n.View.Version, nonce: number(n.RefusedIn)}
	if n.Held != nil {
		h.had, h.hadVersion, h.has = n.Held.Sum, n.Held.Version, true
	}
	if n.Held == nil && n.Before != nil { // it may work
		h.hadVersion, h.has = n.Before.Version, true
	}
	return h, !h.has || !h.hadIs(n.View)
}

// verdicts remember who is at fault for a text and all that was refused with it: a fleet refuses alike. That is all
// that a verdict comes from, so nobody decides for another. The zero value remembers nothing.
type verdicts struct {
	mu    sync.Mutex // held for memory only
	all   map[verdictKey]verdict
	added []verdictKey // the oldest first
}

type verdict struct {
	names []string
	until time.Time
}

type verdictKey [16]byte

const (
	memory    = 10 * time.Second // for which a verdict is remembered
	maxMemory = 1000             // verdicts
)

// verdictKey is the digest of a type, a text, and the names and content of what was refused: clients determine how long
// these are.
func (s *Source) verdictKey(ctx context.Context, a ask) (k verdictKey, ok bool) {
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

func verdictOf(a ask, refused []string) (k verdictKey) {
	slices.Sort(refused)
	h := sha256.New()
	for _, is := range append([]string{a.typ.URL + "\x00", a.text + "\x00"}, refused...) {
		h.Write([]byte(is))
	}
	copy(k[:], h.Sum(nil))
	return k
}

func (vs *verdicts) find(k verdictKey, now time.Time) []string {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.all[k]; now.Before(v.until) {
		return v.names
	}
	return nil
}

func (vs *verdicts) add(k verdictKey, names []string, now time.Time) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.all == nil || len(vs.all) >= maxMemory {
		vs.room()
	}
	if _, known := vs.all[k]; !known {
		vs.added = append(vs.added, k)
	}
	vs.all[k] = verdict{names, now.Add(memory)}
}

// room makes room for one, in place of the oldest: a storm of others leaves the newest.
func (vs *verdicts) room() {
	if vs.all == nil {
		vs.all = map[verdictKey]verdict{}
		return
	}
	delete(vs.all, vs.added[0])
	vs.added = vs.added[1:]
}
