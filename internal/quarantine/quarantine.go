// Package quarantine keeps one resource that a client refuses from holding up the others of its
// response. A client that refuses a response may have applied none of it, and nothing of it is
// sent again while all of it stays as it is. When it is known which resource is at fault, the client is shown
// another view: with what it accepted last in the place of that resource, or, if the resource is
// new to it, without that. Then the others are told again, by the rules of the protocol alone: the core
// knows of no quarantine.
//
// A quarantine is a stream's. It ends when the resource changes, or is removed.
package quarantine

import (
	"context"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxWaiting = 4096                   // refusals that wait to be looked at; others are as without quarantine
	maxHeld    = 100                    // resources in quarantine on one stream
	lookTime   = 2 * time.Second        // to find out who is at fault
	memory     = 10 * time.Second       // for which a verdict is remembered: a fleet refuses alike
	maxMemory  = 1000                   // verdicts
	patience   = 500 * time.Millisecond // for a stream to be looked at
)

// Guilty returns the names of a type, of those that a stream's client has refused with a text, that are
// known to be at fault.
type Guilty func(ctx context.Context, st *server.Stream, t *xds.Type, text string) []string

// A Source shows of another what clients do not refuse. Make it by [New], have it [Source.Run],
// and make it an observer of its server.
type Source struct {
	of     Watched
	guilty Guilty
	told   func(Held, *server.Stream)

	refused chan refusal

	mu      sync.Mutex
	watches map[*xds.Node]*Watch // of streams that say which node they are
	held    int                  // resources, of all streams
}

// Watched is what a source wraps.
type Watched interface {
	Watch(ctx context.Context, node *xds.Node) (server.Watch, error)
}

// A refusal is one that nobody has looked at.
type refusal struct {
	st   *server.Stream
	typ  *xds.Type
	text string
}

// Held is a resource in quarantine.
type Held struct {
	Type    *xds.Type
	Name    string
	Refused string // the version
	Instead string // the version that is shown; "": none
}

// New returns a source that wraps another. told is called for each resource that gets into
// quarantine, by Run; nil: nobody is told.
func New(of Watched, guilty Guilty, told func(Held, *server.Stream)) *Source {
	return &Source{of: of, guilty: guilty, told: told, refused: make(chan refusal, maxWaiting), watches: map[*xds.Node]*Watch{}}
}

// Held returns how many resources are in quarantine now, of all streams.
func (s *Source) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Of returns what of a type is in quarantine on a stream.
func (s *Source) Of(st *server.Stream, t *xds.Type) []Held {
	s.mu.Lock()
	w := s.watches[st.Node]
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.held(t)
}

// Watch implements [server.Source].
func (s *Source) Watch(ctx context.Context, node *xds.Node) (server.Watch, error) {
	of, err := s.of.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	w := &Watch{of: of, source: s, node: node}
	if node != nil { // else nobody knows which stream it is
		s.mu.Lock()
		s.watches[node] = w
		s.mu.Unlock()
	}
	return w, nil
}

func (s *Source) leave(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w.node] == w {
		delete(s.watches, w.node)
	}
	s.held -= w.counted
}

// Opened implements [server.Observer].
func (s *Source) Opened(*server.Stream) {}

// Closed implements [server.Observer].
func (s *Source) Closed(*server.Stream, error) {}

// Event implements [server.Observer]: it waits for nobody.
func (s *Source) Event(st *server.Stream, e protocol.Event) {
	if e.Kind != protocol.Nacked || st.Poll || e.Error == nil {
		return
	}
	select {
	case s.refused <- refusal{st, e.Type, e.Error.Message}:
	default:
	}
}

// Run looks at what is refused until ctx is done.
func (s *Source) Run(ctx context.Context) {
	verdicts := verdicts{}
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.refused:
			s.judge(ctx, r, verdicts)
		}
	}
}

// A verdict is who is at fault for a text, and which content that had.
type verdict struct {
	names map[string]xds.Sum
	until time.Time
}

type verdictKey struct{ url, text string }

type verdicts map[verdictKey]verdict

// judge finds out who is at fault for a refusal, and puts that into quarantine.
func (s *Source) judge(ctx context.Context, r refusal, known verdicts) {
	s.mu.Lock()
	w := s.watches[r.st.Node]
	s.mu.Unlock()
	if w == nil {
		return // it has left, or does not say who it is
	}
	k, now := verdictKey{r.typ.URL, r.text}, time.Now()
	v, ok := known[k]
	if !ok || now.After(v.until) || !s.fits(ctx, r, v) {
		look, cancel := context.WithTimeout(ctx, lookTime)
		v = verdict{map[string]xds.Sum{}, now.Add(memory)}
		for _, name := range s.guilty(look, r.st, r.typ, r.text) {
			v.names[name] = xds.Sum{}
		}
		cancel()
	}
	var put []held
	names := v.names
	err := s.inspect(ctx, r.st, func(session *protocol.Session) {
		for name := range names {
			n := session.NameState(r.typ, name)
			if n.State != protocol.StateRefused || n.View == nil {
				continue // it is not refused, or has changed since
			}
			names[name] = n.View.Sum
			h := held{typ: r.typ, name: name, refused: n.View.Sum, version: n.View.Version}
			if n.Held != nil {
				h.had, h.hadVersion, h.has = n.Held.Sum, n.Held.Version, true
			}
			put = append(put, h)
		}
	})
	if err != nil || len(put) == 0 {
		return
	}
	if len(known) >= maxMemory {
		clear(known)
	}
	known[k] = v
	for _, h := range w.put(put) {
		if s.told != nil {
			s.told(h, r.st)
		}
	}
}

// fits reports whether a verdict is one of what a stream has refused: the same content.
func (s *Source) fits(ctx context.Context, r refusal, v verdict) (fits bool) {
	_ = s.inspect(ctx, r.st, func(session *protocol.Session) {
		fits = len(v.names) > 0
		for name, sum := range v.names {
			n := session.NameState(r.typ, name)
			fits = fits && n.State == protocol.StateRefused && n.View != nil && n.View.Sum == sum
		}
	})
	return fits
}

func (s *Source) inspect(ctx context.Context, st *server.Stream, f func(*protocol.Session)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return st.Inspect(ctx, f)
}
