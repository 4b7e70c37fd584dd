// Package quarantine keeps one refused resource from blocking the other resources of its response. A
// client that refuses a response may have applied none of its resources, and the protocol does not send
// them again while they are unchanged. When the faulty resource is known, the source shows the client
// another view. In this view, the version that the client accepted last replaces the faulty resource. If the
// resource is new to the client, an earlier version that other clients accepted replaces it (HEAL-3). Without
// such a version, the view withholds the resource (HEAL-1). The protocol then sends the other resources again
// by its normal rules. If the faulty resource is unknown, a
// search shows a delta client one half of the refused resources at a time, until the faulty one is found.
//
// A quarantine belongs to one stream: a NACK of one client never changes the view of another client.
// A faulty resource that was found on one stream is a hint for another stream, but only if the other
// stream refused the same content. A hint that proves wrong is dropped. A quarantine ends when the
// resource changes or is removed, when the client accepts a retry of the refused version (HEAL-2), when an
// operator releases the resource, or when the stream ends.
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
	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	examiners      = 4                      // streams that are examined at the same time, so that a slow stream does not block the others
	examTimeout    = 2 * time.Second        // timeout for finding the faulty resources
	inspectTimeout = 500 * time.Millisecond // timeout for reading the state of a stream
	maxText        = 16 << 10               // bytes of a client's error text that are examined
	maxKept        = 1 << 10                // bytes of a client's error text that are kept
	maxTypes       = 8                      // types of one stream that may wait for an examination
	maxExams       = 20                     // examinations of one stream in examPeriod; further refusals get no quarantine
	examPeriod     = 10 * time.Second
	maxNamed       = 5        // refusals of one stream in examPeriod that are taken at their word; see judge
	maxHeld        = 100      // resources without a replacement that are in quarantine on one stream
	maxHeldBytes   = 16 << 20 // bytes of resources with a replacement on one stream, see heldBytes
	maxHeldAll     = 100_000  // resources in quarantine, over all streams; with more, maxHeld is the limit of each stream
	maxCleared     = 100      // resources of a stream that a text names, and whose quarantine did not help
)

// Guilty returns the faulty resources of type t, among the resources that a stream's client refused with an
// error text.
type Guilty func(ctx context.Context, st *server.Stream, t *xds.Type, text string) Blame

// A Blame is the result of [Guilty]. The zero value has no faulty resource.
type Blame struct {
	Names []string
	Named bool // the error text names the resources; otherwise the server has found faults in their newest versions
	More  bool // the list is cut off
}

// Options connect a source with its users. All are optional, except Guilty.
type Options struct {
	Guilty Guilty

	// [Source.Run] calls Told for each resource that comes into quarantine.
	Told func(Held, *server.Stream)

	// Moved is called when the result of [Source.Refused] may have changed. It must not block or call the
	// source.
	Moved func()

	// Scope returns a key for nodes that see the same resources, if the watches of the source do not return
	// their groups. A version that is shown to one node may be shown to all nodes with the same key. Nil: all
	// nodes see the same resources.
	Scope func(*xds.Node) string

	// Revision returns the revision of the configuration that set a version of a resource, for people; "": unknown.
	// The groups are separated by zero bytes. Nil: there are no revisions.
	Revision func(groups string, t *xds.Type, name string, sum xds.Sum) string

	Log *slog.Logger // for panics; nil: no log
}

// A Source wraps another source and hides the resources that a client refuses. Create it with [New], run it
// with [Source.Run], and make it an observer of its server.
type Source struct {
	of   Watched
	opts Options

	evidence     evidence.Book
	replacements replacements
	taken        taken
	verdicts     verdicts
	searches     searches
	siblings     siblings

	watches sync.Map      // from *xds.Node to *Watch, for streams with a node
	wake    chan struct{} // has one slot

	mu      sync.Mutex           // held for memory access only
	queue   []*Watch             // streams that wait for an examination, each stream once
	held    int                  // resources in quarantine, over all streams
	early   int                  // of these, resources for which the client has an earlier version that others accepted
	retries map[*Watch]time.Time // time of the next retry of a stream
}

// Watched is the interface of the wrapped source.
type Watched interface {
	Watch(ctx context.Context, node *xds.Node) (server.Watch, error)
}

// Held is a resource in quarantine.
type Held struct {
	Type     *xds.Type
	Name     string
	Refused  string        // the refused version
	Body     *xds.Resource // the refused version
	Instead  string        // the version that is shown; "": none
	Others   bool          // other clients accepted the version that is shown, and this client had none
	By       Reason
	RefersTo xds.Ref   // for a Dependent: the resource in quarantine to which this one refers
	RetryAt  time.Time // time of the next retry (HEAL-2), from Of; zero: none, or the session schedules it
}

// A Kept is a resource that the view lacks and that the client keeps, because a replacement of a resource in
// quarantine refers to it, directly or indirectly.
type Kept struct {
	*xds.Resource
	By xds.Ref // a resource of the client that refers to it
}

func bodies(of []Kept) (all []*xds.Resource) {
	for _, k := range of {
		all = append(all, k.Resource)
	}
	return all
}

// A Reason is the reason why a resource is in quarantine.
type Reason uint8

// The reasons.
const (
	Named      Reason = iota // the client's error text names the resource, or the resource has a known fault
	Found                    // during a search, the client refused the resource alone
	Searching                // a search is running, and the resource may be faulty
	Dependent                // the resource refers to a refused resource that is new to the client
	Unaccepted               // the error text names no resource, and no client has accepted this version
)

var reasons = [...]string{"named", "found by bisecting", "bisecting", "refers to one in quarantine", "accepted by no client"}

func (r Reason) String() string { return reasons[r] }

// New returns a source that wraps another source.
func New(of Watched, o Options) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{of: of, opts: o, wake: make(chan struct{}, 1), retries: map[*Watch]time.Time{}}
	s.evidence.Revision = o.Revision
	return s
}

// Evidence returns the versions that clients accepted, to store them and to share them with other servers.
func (s *Source) Evidence() *evidence.Book { return &s.evidence }

// Held returns the number of resources in quarantine, over all streams.
func (s *Source) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Early returns the number of resources for which clients get an earlier version that others accepted, over
// all streams.
func (s *Source) Early() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.early
}

// An Earlier is a version that clients get because others accepted it (HEAL-3).
type Earlier struct {
	Type             *xds.Type
	Name             string
	Refused, Instead string // versions

	RefusedSince, InsteadSince string // the revisions that set them; "": unknown
	Clients                    int
}

// Earlier returns the earlier versions of all streams, by type and name, at most max.
func (s *Source) Earlier(max int) (all []Earlier) {
	if s.Early() == 0 {
		return nil
	}
	n := map[Earlier]int{}
	s.watches.Range(func(_, of any) bool {
		w := of.(*Watch)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.holds {
			if h := &w.holds[i]; h.others {
				n[Earlier{Type: h.typ, Name: h.name, Refused: h.version, Instead: h.old.Version, RefusedSince: h.badSince, InsteadSince: h.oldSince}]++
			}
		}
		return true
	})
	for e, clients := range n {
		e.Clients = clients
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Earlier) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), strings.Compare(a.Name, b.Name), strings.Compare(a.Refused, b.Refused), strings.Compare(a.Instead, b.Instead))
	})
	return all[:min(len(all), max)]
}

// Searches returns the number of finished searches by result: "found", "nothing", "gave_up".
func (s *Source) Searches() map[string]uint64 {
	s.searches.mu.Lock()
	defer s.searches.mu.Unlock()
	return map[string]uint64{"found": s.searches.ended[0], "nothing": s.searches.ended[1], "gave_up": s.searches.ended[2]}
}

// Of returns the resources of a type that are in quarantine for a stream.
func (s *Source) Of(st *server.Stream, t *xds.Type) []Held {
	if w := s.watchOf(st); w != nil {
		return w.held(t)
	}
	return nil
}

// Kept returns the resources of a type that are shown to a stream only because of the quarantine.
func (s *Source) Kept(st *server.Stream, t *xds.Type) (all []Kept) {
	if w := s.watchOf(st); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, k := range w.kept {
			if k.Type.Is(t) {
				all = append(all, k)
			}
		}
	}
	return all
}

// Refused is a version of a resource that a client refused because the resource is faulty.
type Refused struct {
	Type *xds.Type
	Name string
	Sum  xds.Sum
	Text string // the error text of one client
}

// Refused returns the faulty resources of all streams, each content once, by type and name. If there are
// more than max, it takes one content of each owner of streams in turn. The owner is the identity of the
// client, else its address. So an owner with many refusals does not hide the refusals of others.
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

// A content is a version of a resource.
type content struct {
	key
	sum xds.Sum
}

func (c content) compare(o content) int {
	return cmp.Or(strings.Compare(c.url, o.url), strings.Compare(c.name, o.name), strings.Compare(c.sum.String(), o.sum.String()))
}

// inTurn returns n different contents: first one of each owner, then a second one of each, and so on.
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

func (s *Source) revision(groups string, t *xds.Type, name string, sum xds.Sum) string {
	if s.opts.Revision == nil {
		return ""
	}
	return s.opts.Revision(groups, t, name, sum)
}

// moved reports that a resource came into quarantine or left it.
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
	if node != nil { // without a node the stream cannot be identified
		if id := w.Identity(); id != nil {
			w.owner = id.String()
		}
		w.agent = evidence.AgentOf(node)
		w.enter()
		s.watches.Store(node, w)
	}
	return w, nil
}

func (s *Source) leave(w *Watch) {
	s.watches.CompareAndDelete(w.node, w)
	s.mu.Lock()
	moved := w.counted > 0
	s.held, s.early = s.held-w.counted, s.early-w.early
	w.counted, w.early = 0, 0
	delete(s.retries, w)
	s.mu.Unlock()
	if moved {
		s.moved()
	}
	s.reexamine(s.searches.leave(w))
}

// reexamine adds streams to the queue.
func (s *Source) reexamine(all []waiting) {
	for _, w := range all {
		if w.w.addAnswer(w.answer) {
			s.enqueue(w.w)
		}
	}
}

// Opened implements [server.Observer].
func (s *Source) Opened(*server.Stream) {}

// Closed implements [server.Observer].
func (s *Source) Closed(*server.Stream, error) {}

// Event implements [server.Observer]. It never blocks.
func (s *Source) Event(st *server.Stream, e protocol.Event) {
	if st.Poll || e.Kind != protocol.Nacked && e.Kind != protocol.Acked {
		return
	}
	w := s.watchOf(st)
	if w != nil && e.Kind == protocol.Acked {
		w.evidence.Load().Accept(e.Type, w.agent, w.owner, e.Version, e.Accepted)
	}
	switch {
	case w == nil: // the stream has ended or has no node
	case e.Kind == protocol.Acked && !w.accepted(e.Type, e.Refuses && !e.Withheld, e.Accepted) && !e.Retry: // the usual case: an ACK without a running search or a retry
	case e.Kind == protocol.Nacked && e.Error == nil:
	default:
		a := answer{st: st, typ: e.Type, refused: e.Kind == protocol.Nacked}
		if e.Error != nil {
			a.text = e.Error.Message[:min(len(e.Error.Message), maxText)]
		}
		if w.addAnswer(a) {
			s.enqueue(w)
		}
	}
}

// enqueue adds a stream to the queue.
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

// next takes a stream from the queue; nil if the queue is empty.
func (s *Source) next() (w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	w, s.queue[0] = s.queue[0], nil
	s.queue = s.queue[1:]
	if len(s.queue) == 0 {
		s.queue = nil
	} else {
		s.signal() // another examiner may take the next stream
	}
	return w
}

// Run examines refusals until ctx is done.
func (s *Source) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range examiners {
		all.Go(func() { s.work(ctx) })
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done(): // the examiners end, too
		case now := <-tick.C:
			s.reexamine(s.searches.overdue(now))
			s.reexamine(s.searches.turns())
			s.retry(now)
		}
	}
	all.Wait()
}

// work examines one stream after another.
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
		if p := panics.Do(func() { s.examine(ctx, w, w.nextAnswer()) }); p != nil {
			p.Log(s.opts.Log, "quarantine")
		}
		if w.moreAnswers() { // put the stream at the end of the queue: other streams come first
			s.enqueue(w)
		}
	}
}

// inspect runs f with a stream's session.
func (s *Source) inspect(ctx context.Context, st *server.Stream, f func(*protocol.Session)) error {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	return st.Inspect(ctx, f)
}
