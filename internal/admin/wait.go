package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxWait   = time.Hour
	lookEvery = 20 * time.Millisecond  // shortest interval between checks, however fast clients answer
	lookAgain = time.Second            // interval of checks without a known change
	lookTime  = 250 * time.Millisecond // time of a look, though the wait ends before: with [waitTime] less than another server's deadline
	lookers   = 4                      // goroutines that inspect streams for one request
	named     = 10                     // node IDs in an answer
)

// wait answers when all selected clients have accepted the served revision or a later one. It also
// answers when a client refuses (unless refused=wait), and after the timeout.
//
// A request without a revision waits for the present files. If the last load of the directory or of a
// selected group was rejected, no server has these files, and the answer is the same as for a refusal.
//
// The tracker cannot show that a stream has not yet seen the newest commit. So wait inspects each stream
// itself, until the stream has been settled once.
func (s *Server) wait(w http.ResponseWriter, r *http.Request) error {
	a, timeout, err := s.waiter(queryOf(r), maxWait)
	if err != nil {
		return err
	}
	r, leave, err := s.waiting.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout + writeTime)) // not all writers support it
	result := s.waited(r, a, timeout)
	switch {
	case errors.Is(context.Cause(r.Context()), errReplaced):
		return errReplaced
	case r.Context().Err() != nil: // the caller has disconnected, or the server ends
		return errEnding
	}
	answer(w, http.StatusOK, result)
	return nil
}

// waited waits for at most timeout and returns the result.
func (s *Server) waited(r *http.Request, a *waiting, timeout time.Duration) api.WaitResult {
	result := a.result(a.run(r.Context(), timeout))
	if len(result.Refusals) > 0 {
		result.Refusals = s.blamed(r.Context(), result.Refusals)
	}
	return result
}

// waiter parses the parameters of a request: the selected clients, the revision and the timeout, which is at
// most longest. The group must exist, and a revision of the store needs a store.
func (s *Server) waiter(q *query, longest time.Duration) (*waiting, time.Duration, error) {
	a := waiting{s: s, asked: clients.Filter{Node: q.pattern("node"), Group: q.text("group"), Type: q.typ("type"), All: true}, revision: q.number("revision", 1<<63), stored: q.stored("stored"), streamStates: map[*server.Stream]Stand{}}
	timeout := q.duration("timeout", 30*time.Second, longest)
	if f := q.text("for"); f != "" && f != "synced" {
		q.fail("for", "unknown condition "+quoted(f), `the only one is "synced"`)
	}
	switch v := q.text("refused"); v {
	case "", "fail":
	case "wait":
		a.ignoreRefusals = true
	default:
		q.fail("refused", "must be fail or wait", "")
	}
	switch {
	case q.err != nil:
		return nil, 0, q.err
	case a.stored > 0 && s.Config().Store == nil:
		return nil, 0, missing("stored", fmt.Sprintf("this server has no store, so it cannot serve r%d", a.stored), "without an r it is the number that chancery status shows")
	}
	a.newest = a.revision == 0 && a.stored == 0
	return &a, timeout, s.knownGroup(a.asked.Group)
}

// A waiting is the state of one waiting request.
type waiting struct {
	s              *Server
	asked          clients.Filter
	revision       uint64
	stored         uint64 // awaited revision of the store; 0: any
	ignoreRefusals bool   // a refusal does not end the wait

	served       uint64                   // the revision that this server serves
	of           string                   // the revision of the store that this server serves
	reached      bool                     // this server serves the awaited revision
	newest       bool                     // the caller named no revision
	removals     *api.Removals            // delayed removals, if newest is set
	uncommitted  bool                     // newest is set, and loaded files are not yet a served revision of the store
	loops        []api.Trouble            // clients that leave again and again after a response of the served revision
	left         []string                 // node IDs of other clients that left without an answer, and may return
	rejected     *api.Rejected            // the rejected last load; nil: accepted or irrelevant
	streamStates map[*server.Stream]Stand // states of the streams that were inspected while this revision was served
}

// run waits until all selected clients are settled, until one refuses, or until the timeout or the context
// ends. It reports whether all are settled. The first look and the last one have lookTime, also with a
// timeout of 0s: a stream that is not inspected counts as pending.
func (a *waiting) run(request context.Context, timeout time.Duration) bool {
	end := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(request, end)
	defer cancel()
	for {
		changed := a.s.Tracker.Changed()
		began := time.Now()
		looking, stop := context.WithTimeout(request, max(time.Until(end), lookTime))
		done, refused := a.look(looking)
		stop()
		switch {
		case done:
			return true
		case refused && !a.ignoreRefusals, ctx.Err() != nil:
			return false
		}
		cost := time.Since(began)
		again := time.NewTimer(lookAgain)
		select {
		case <-changed:
			again.Stop()
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
		// Many clients may answer at the same time: check at most once per lookEvery, and spend at most
		// half of the time on checks.
		select {
		case <-time.After(max(lookEvery, min(cost, lookAgain))):
		case <-ctx.Done():
		}
	}
}

// look inspects all streams that are not settled yet.
func (a *waiting) look(ctx context.Context) (done, refused bool) {
	now := a.s.Config()
	a.served = now.Revision
	if now.Store != nil {
		a.of = now.Store.Revision
	}
	below := a.stored > 0 && (now.Store == nil || storedNumber(now.Store.Revision) < a.stored)
	a.rejected, a.removals, a.uncommitted = nil, nil, false
	if a.newest {
		a.removals = now.Removals
		a.uncommitted = now.Store != nil && now.Store.Writer != nil && now.Store.Writer.Pending
	}
	if a.revision == 0 && (a.stored == 0 || below) {
		a.rejected = now.Rejected
		if a.rejected == nil {
			a.rejected = a.rejectedGroup()
		}
	}
	a.reached = now.Revision >= a.revision && !below && !a.uncommitted && a.rejected == nil
	if !a.reached {
		return false, a.rejected != nil
	}
	all := a.s.Tracker.Selected(a.asked)
	streamStates := make(map[*server.Stream]Stand, len(all))
	var ask []*server.Stream
	for _, st := range all {
		if a.streamStates[st] == Settled {
			streamStates[st] = Settled
			continue
		}
		ask = append(ask, st)
	}
	var mu sync.Mutex // guards streamStates
	var at sync.WaitGroup
	part := (len(ask) + lookers - 1) / lookers
	for some := range slices.Chunk(ask, max(part, 1)) {
		at.Go(func() {
			for _, st := range some {
				stand := Pending
				if p := panics.Do(func() { stand = a.s.settles(ctx, st, a.asked.Type) }); p != nil {
					p.Log(a.s.log(), "admin API wait")
				}
				mu.Lock()
				streamStates[st] = stand
				mu.Unlock()
			}
		})
	}
	at.Wait()
	a.streamStates = streamStates
	a.findLoops(&now)
	// A filter that no client matches yet is not done: such clients may still connect.
	done = a.removals == nil && len(a.loops)+len(a.left) == 0 && (len(all) > 0 || a.asked.Node == nil && a.asked.Group == "" && a.asked.Type == nil)
	for _, stand := range streamStates {
		done = done && (stand == Settled || stand == Gone)
		refused = refused || stand == Refuses
	}
	return done, refused || len(a.loops) > 0
}

// findLoops finds the selected clients that ended their stream soon after a response, without an answer. A
// loop is a failure if its last end is later than the served revision. An earlier end concerns an earlier
// revision, so the answer to this one is still awaited.
func (a *waiting) findLoops(now *api.Config) {
	a.loops, a.left = nil, nil
	for _, l := range a.s.Tracker.Loops(a.asked) {
		if l.Certain && (now.At == nil || l.At.After(*now.At)) {
			a.loops = append(a.loops, l.Trouble)
		} else {
			a.left = append(a.left, l.Node)
		}
	}
}

// rejectedGroup returns the rejected load of a single group that the request selects, or that a selected
// client gets; nil if no such load was rejected.
func (a *waiting) rejectedGroup() *api.Rejected {
	var all []api.Group
	for _, g := range a.s.Groups() {
		if g.Rejected != nil {
			if g.Name == a.asked.Group {
				return g.Rejected
			}
			all = append(all, g)
		}
	}
	if all == nil {
		return nil
	}
	clients := a.s.Tracker.Clients(a.asked).Items
	for _, g := range all {
		if slices.ContainsFunc(clients, func(c api.Client) bool { return slices.Contains(c.Groups, g.Name) }) {
			return g.Rejected
		}
	}
	return nil
}

func (a *waiting) result(done bool) api.WaitResult {
	r := api.WaitResult{APIVersion: api.Version, Kind: api.KindWaitResult, Done: done, Served: a.reached, Revision: a.served, StoreRevision: a.of, Rejected: a.rejected, Removals: a.removals, Uncommitted: a.uncommitted}
	r.Clients = counts(r.Clients)
	// An earlier refusal does not count while a newer response is in flight.
	refusing := map[uint64]bool{}
	for st, stand := range a.streamStates {
		refusing[st.ID] = stand == Refuses
	}
	why := map[[2]string]*api.Refusal{}
	for _, c := range a.s.Tracker.Clients(a.asked).Items {
		r.Clients.Connected++
		r.Clients.By[c.State]++
		for _, t := range c.Types {
			if n := t.Nacked; n != nil && refusing[t.Stream] && (a.asked.Type == nil || a.asked.Type.URL == t.URL) {
				refuses(why, cmp.Or(c.Node, c.Path), t.Type, n)
			}
		}
	}
	for _, one := range why {
		r.Refusals = append(r.Refusals, *one)
	}
	slices.SortFunc(r.Refusals, func(x, y api.Refusal) int {
		return cmp.Or(-cmp.Compare(x.Clients, y.Clients), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Error, y.Error))
	})
	r.Refusals = r.Refusals[:min(len(r.Refusals), 100)]
	slices.SortFunc(a.loops, func(x, y api.Trouble) int { return cmp.Compare(x.Node, y.Node) })
	r.Loops = a.loops[:min(len(a.loops), maxTold)]
	for st, stand := range a.streamStates {
		if node := cmp.Or(st.Node.ID, clients.PathOf(st.ID)); stand == Pending && !slices.Contains(r.Pending, node) {
			r.Pending = append(r.Pending, node)
		}
	}
	r.Pending = append(r.Pending, a.left...)
	slices.Sort(r.Pending)
	r.Pending = slices.Compact(r.Pending)
	r.Pending = r.Pending[:min(len(r.Pending), named)]
	return r
}

// refuses adds a client to the refusals by type and error.
func refuses(why map[[2]string]*api.Refusal, node, typ string, n *api.NackedStatus) {
	one := why[[2]string{typ, n.Error}]
	if one == nil {
		one = &api.Refusal{Type: typ, Error: n.Error, Since: n.Since, Resources: some(n.Resources)}
		why[[2]string{typ, n.Error}] = one
	}
	one.Clients++
	if n.Since.Before(one.Since) {
		one.Since = n.Since
	}
	if len(one.Nodes) < named {
		one.Nodes = append(one.Nodes, node)
	}
}

func (s *Server) settles(ctx context.Context, st *server.Stream, t *xds.Type) Stand {
	if s.Settles != nil {
		return s.Settles(ctx, st, t)
	}
	return settled(ctx, st, t)
}

// settled inspects a stream and returns its state.
func settled(ctx context.Context, st *server.Stream, t *xds.Type) Stand {
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	moves, waits, refuses := false, false, false
	err := st.Inspect(ctx, func(s *protocol.Session) {
		for _, ts := range s.States() {
			if t != nil && !t.Is(ts.Type) {
				continue
			}
			moves = moves || len(ts.Unanswered) > 0 || ts.Due
			waits = waits || ts.Waiting > 0
			refuses = refuses || ts.Refusing
		}
	})
	switch {
	case errors.Is(err, server.ErrEnded):
		return Gone
	case err != nil, moves:
		return Pending
	case refuses: // a waiting resource may wait for the refused one
		return Refuses
	case waits:
		return Pending
	}
	return Settled
}
