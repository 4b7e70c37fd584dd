// Package quarantine keeps one resource that a client refuses from holding up the others of its
// response. A client that refuses a response may have applied none of it, and nothing of it is
// sent again while all of it stays as it is. When it is known which resource is at fault, the client is shown
// another view: with what it accepted last in the place of that resource, or, if the resource is
// new to it, without that. Then the others are told again, by the rules of the protocol alone: the core
// knows of no quarantine. If nobody knows which it is, a delta client is shown the refused ones by
// halves, until it is known: see search.
//
// A quarantine is a stream's: whatever a client says, no other gets anything else for that. What
// was found out about one stream is a hint for another only if that has refused the same content, and
// is taken back if it was not that. A quarantine ends when the resource changes, or is removed.
package quarantine

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	judges     = 4                      // streams that are looked at at a time: one that takes long holds up no other
	lookTime   = 2 * time.Second        // to find out who is at fault
	patience   = 500 * time.Millisecond // for a stream to be looked at
	maxText    = 16 << 10               // bytes of what a client says that are looked at
	maxKept    = 1 << 10                // the same that are kept
	maxTypes   = 8                      // of one stream that wait to be looked at
	maxLooks   = 20                     // of one stream within looksTime; others are as without quarantine
	looksTime  = 10 * time.Second
	maxHeld    = 100 // resources in quarantine on one stream
	maxCleared = 100 // resources of a stream that are not at fault, though a text names them
)

// Guilty returns the names of a type, of those that a stream's client has refused with a text, that are
// known to be at fault.
type Guilty func(ctx context.Context, st *server.Stream, t *xds.Type, text string) []string

// Options say what a source knows. All may be nil, save Guilty.
type Options struct {
	Guilty Guilty

	// Told is called for each resource that gets into quarantine, by [Source.Run].
	Told func(Held, *server.Stream)

	// Ended is called when a stream's client refuses nothing of a type any more though it has answered
	// nothing: what it had refused is gone, and had nothing in its place. It is called by the stream's goroutine.
	Ended func(*server.Stream, *xds.Type)

	// Moved is called when what [Source.Refused] returns may have changed. It must not block, nor call the
	// source.
	Moved func()

	// Scope says who sees the same as a node: what one was shown may be shown to the other. Nil: all.
	Scope func(*xds.Node) string

	Log *slog.Logger // of panics; nil: none
}

// A Source shows of another what clients do not refuse. Make it by [New], have it [Source.Run],
// and make it an observer of its server.
type Source struct {
	of   Watched
	opts Options

	kept     kept
	verdicts verdicts
	searches searches

	watches sync.Map      // *xds.Node → *Watch, of streams that say which node they are
	wake    chan struct{} // with one slot

	mu    sync.Mutex // held for memory only
	queue []*Watch   // that wait to be looked at, each once
	held  int        // resources, of all streams
}

// Watched is what a source wraps.
type Watched interface {
	Watch(ctx context.Context, node *xds.Node) (server.Watch, error)
}

// Held is a resource in quarantine.
type Held struct {
	Type    *xds.Type
	Name    string
	Refused string        // the version
	Body    *xds.Resource // the same
	Instead string        // the version that is shown; "": none
	By      Reason
	Needs   xds.Ref // Dependent: what is in quarantine that it refers to
}

// A Reason says why a resource is in quarantine.
type Reason uint8

// Reasons.
const (
	Named     Reason = iota // the client's text names it, or something is wrong with it
	Found                   // it was refused alone, while the server looked for who is at fault
	Searching               // it may be at fault: the server is looking for who is
	Dependent               // it refers to one that the client has refused, and has nothing of
)

var reasons = [...]string{"named", "found by bisecting", "bisecting", "refers to one in quarantine"}

func (r Reason) String() string { return reasons[r] }

// New returns a source that wraps another.
func New(of Watched, o Options) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{of: of, opts: o, wake: make(chan struct{}, 1)}
}

// Held returns how many resources are in quarantine now, of all streams.
func (s *Source) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Searches returns how many searches have ended, by how: "found", "nothing", "gave_up".
func (s *Source) Searches() map[string]uint64 {
	s.searches.mu.Lock()
	defer s.searches.mu.Unlock()
	return map[string]uint64{"found": s.searches.ended[0], "nothing": s.searches.ended[1], "gave_up": s.searches.ended[2]}
}

// Of returns what of a type is in quarantine on a stream.
func (s *Source) Of(st *server.Stream, t *xds.Type) []Held {
	if w := s.watchOf(st); w != nil {
		return w.held(t)
	}
	return nil
}

// Refused is content that clients are known to refuse.
type Refused struct {
	Type *xds.Type
	Name string
	Sum  xds.Sum
	Text string // what one of them says
}

// Refused returns what is known to be at fault on any stream, each content once, by type and name: of more
// than max those that owners of streams, by identity or else address, have one after the other, so that nobody who refuses
// much keeps others from being heard.
func (s *Source) Refused(max int) []Refused {
	known, by := map[content]Refused{}, map[string][]content{}
	s.watches.Range(func(_, of any) bool {
		w := of.(*Watch)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.holds {
			h := &w.holds[i]
			if !h.fault() {
				continue
			}
			k := content{h.key(), h.refused}
			by[w.owner] = append(by[w.owner], k)
			if known[k].Text == "" || h.text != "" && h.text < known[k].Text {
				known[k] = Refused{h.typ, h.name, h.refused, h.text}
			}
		}
		return true
	})
	var all []Refused
	for _, k := range inTurn(by, min(len(known), max)) {
		all = append(all, known[k])
	}
	slices.SortFunc(all, func(a, b Refused) int {
		return cmp.Or(strings.Compare(a.Type.URL, b.Type.URL), strings.Compare(a.Name, b.Name), strings.Compare(a.Sum.String(), b.Sum.String()))
	})
	return all
}

// A content is one of a name.
type content struct {
	key
	sum xds.Sum
}

func (c content) compare(o content) int {
	return cmp.Or(strings.Compare(c.url, o.url), strings.Compare(c.name, o.name), strings.Compare(c.sum.String(), o.sum.String()))
}

// inTurn takes n different ones of as many or more: one of each owner, and then another of each.
func inTurn(by map[string][]content, n int) (all []content) {
	owners, taken := slices.Sorted(maps.Keys(by)), map[content]bool{}
	for _, o := range owners {
		slices.SortFunc(by[o], content.compare)
	}
	for len(all) < n {
		for _, o := range owners {
			mine := slices.DeleteFunc(by[o], func(k content) bool { return taken[k] })
			if len(mine) > 0 && len(all) < n {
				taken[mine[0]] = true
				all, mine = append(all, mine[0]), mine[1:]
			}
			by[o] = mine
		}
	}
	return all
}

// moved tells that something has come into quarantine, or has left it.
func (s *Source) moved() {
	if s.opts.Moved != nil {
		s.opts.Moved()
	}
}

func (s *Source) watchOf(st *server.Stream) *Watch {
	if w, ok := s.watches.Load(st.Node); ok {
		return w.(*Watch)
	}
	return nil
}

// Watch implements [server.Source].
func (s *Source) Watch(ctx context.Context, node *xds.Node) (server.Watch, error) {
	of, err := s.of.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	w := &Watch{of: of, source: s, node: node}
	if p, ok := peer.FromContext(ctx); ok {
		w.owner = fair.Owner(p.Addr)
	}
	if node != nil { // else nobody knows which stream it is
		if s.opts.Scope != nil {
			w.scope = s.opts.Scope(node)
		}
		if id := w.Identity(); id != nil {
			w.scope += "\x00" + id.String()
			w.owner = id.String()
		}
		s.watches.Store(node, w)
	}
	return w, nil
}

func (s *Source) leave(w *Watch) {
	s.watches.CompareAndDelete(w.node, w)
	s.mu.Lock()
	moved := w.counted > 0
	s.held -= w.counted
	w.counted = 0
	s.mu.Unlock()
	if moved {
		s.moved()
	}
	s.askAgain(s.searches.leave(w))
}

// askAgain has streams looked at once more.
func (s *Source) askAgain(all []waiting) {
	for _, w := range all {
		if w.w.ask(w.ask) {
			s.enqueue(w.w)
		}
	}
}

// Opened implements [server.Observer].
func (s *Source) Opened(*server.Stream) {}

// Closed implements [server.Observer].
func (s *Source) Closed(*server.Stream, error) {}

// Event implements [server.Observer]: it waits for nobody.
func (s *Source) Event(st *server.Stream, e protocol.Event) {
	if st.Poll || e.Kind != protocol.Nacked && e.Kind != protocol.Acked {
		return
	}
	w := s.watchOf(st)
	switch {
	case w == nil: // it has left, or does not say who it is
	case e.Kind == protocol.Acked && !w.accepted(e.Type): // which is what nearly all do
	case e.Kind == protocol.Nacked && e.Error == nil:
	default:
		a := ask{st: st, typ: e.Type, refused: e.Kind == protocol.Nacked}
		if e.Error != nil {
			a.text = e.Error.Message[:min(len(e.Error.Message), maxText)]
		}
		if w.ask(a) {
			s.enqueue(w)
		}
	}
}

// enqueue has a stream looked at.
func (s *Source) enqueue(w *Watch) {
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	s.signal()
}

func (s *Source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next takes a stream that waits; nil if none does.
func (s *Source) next() (w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	w, s.queue[0] = s.queue[0], nil
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
	} else {
		s.signal() // another may work on that meanwhile
	}
	return w
}

// Run looks at what is refused until ctx is done.
func (s *Source) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range judges {
		all.Go(func() { s.work(ctx) })
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done(): // and so are the others
		case now := <-tick.C:
			s.askAgain(s.searches.overdue(now))
			s.askAgain(s.searches.turns())
		}
	}
	all.Wait()
}

// work looks at one stream after the other.
func (s *Source) work(ctx context.Context) {
	for {
		w := s.next()
		if w == nil {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if p := panics.Do(func() { s.look(ctx, w, w.firstAsk()) }); p != nil {
			p.Log(s.opts.Log, "quarantine")
		}
		if w.askedMore() { // which others come before
			s.enqueue(w)
		}
	}
}

// inspect looks at a stream's session.
func (s *Source) inspect(ctx context.Context, st *server.Stream, f func(*protocol.Session)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return st.Inspect(ctx, f)
}
