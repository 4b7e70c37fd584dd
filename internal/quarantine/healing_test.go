package quarantine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// Several clients refuse random versions for a while, and then accept them. Versions change and return,
// resources are deleted, clients restart and reconnect, and an operator resends. Other clients have accepted
// earlier versions.
//
//   - HEAL-2: a refused version is sent again by the schedule only, or because of a change.
//   - When no client refuses any more, each client gets the newest version of each resource. Then the server
//     is silent.
//   - HEAL-5: no refusal is left then.
func TestRandomRefusalsHeal(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		for what, named := range map[string]bool{"named": true, "unnamed": false} {
			t.Run(fmt.Sprintf("%s %d", what, seed), func(t *testing.T) {
				within(t, func(r *fixture) { newFleet(r, seed, named).play() })
			})
		}
	}
}

// A fleet is a server with several clients. The dice make all choices.
type fleet struct {
	*fixture
	dice  *rand.Rand
	conn  grpc.ClientConnInterface
	named bool // the error text of a NACK names the faulty resources
	all   []*fleetClient
	count int                 // versions
	past  map[string][]string // versions of each resource, oldest first; "": deleted

	mu       sync.Mutex
	streams  map[string]*server.Stream    // by node
	unread   map[string]int               // responses that the client has not read, by stream and type
	refusing map[string]bool              // by stream and type, as a gauge counts
	sent     map[*server.Stream]time.Time // last response
}

// A fleetClient is a client that refuses some versions until a time.
type fleetClient struct {
	*fleet
	id, agent string
	dial      dialer
	client    *xdstest.Client
	held      map[string]string
	refuses   map[string]time.Time   // by resource and version
	tries     map[string][]time.Time // times at which this stream sent a refused version
	hastened  map[string]int         // tries that the back-off does not delay: a hastened one, and the one planned before
	changed   time.Time              // the last event that may cause a new try at once
}

var fleetTypes = []*xds.Type{xds.Cluster, xds.Listener}

func newFleet(r *fixture, seed uint64, named bool) *fleet {
	w := &fleet{fixture: r, dice: rand.New(rand.NewPCG(seed, 7)), named: named, past: map[string][]string{},
		streams: map[string]*server.Stream{}, unread: map[string]int{}, refusing: map[string]bool{}, sent: map[*server.Stream]time.Time{}}
	r.source.opts.Guilty = func(_ context.Context, _ *server.Stream, t *xds.Type, text string) Blame {
		return Blame{Names: strings.Fields(text), Named: true}
	}
	srv := server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, w)), server.WithLogger(slog.New(slog.DiscardHandler)))
	w.conn = xdstest.Serve(r, srv)
	for i := range 2 + w.dice.IntN(3) {
		c := &fleetClient{fleet: w, id: fmt.Sprint("node", i), agent: []string{"envoy", "envoy", "gRPC Go"}[w.dice.IntN(3)], dial: xdstest.Delta, refuses: map[string]time.Time{}}
		if w.dice.IntN(2) == 0 {
			c.dial = xdstest.SotW
		}
		w.all = append(w.all, c)
	}
	return w
}

func (w *fleet) Opened(*server.Stream) {}

func (w *fleet) Closed(st *server.Stream, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range fleetTypes {
		delete(w.refusing, w.key(st, t))
	}
}

func (w *fleet) key(st *server.Stream, t *xds.Type) string { return fmt.Sprint(st.ID, " ", t) }

func (w *fleet) Event(st *server.Stream, e protocol.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.streams[st.Node.ID]; last == nil || last.ID < st.ID {
		w.streams[st.Node.ID] = st
	}
	switch {
	case e.Kind == protocol.Sent:
		w.unread[w.key(st, e.Type)]++
		w.sent[st] = time.Now()
	case e.Kind == protocol.Nacked && e.Refuses:
		w.refusing[w.key(st, e.Type)] = true
	case e.Kind == protocol.Recovered:
		delete(w.refusing, w.key(st, e.Type))
	}
}

// play has a quarter of an hour of changes, and then an hour of rest.
func (w *fleet) play() {
	w.commit()
	for _, c := range w.all {
		c.start(false)
	}
	for range 15 * 60 * 2 {
		w.act()
		w.pass(time.Second / 2)
	}
	w.note("all clients accept everything")
	for _, c := range w.all {
		clear(c.refuses)
	}
	for range 20 * 60 { // a search without result pauses for 10 min
		w.pass(time.Second)
	}
	for _, c := range w.all {
		c.converged()
	}
	w.holds(0)
	w.source.watches.Range(func(_, of any) bool {
		q := of.(*Watch)
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, h := range q.holds {
			w.Errorf("%s holds %+v", q.node.ID, h)
		}
		return true
	})
	w.mu.Lock()
	if len(w.refusing) > 0 || w.source.Early() > 0 {
		w.Errorf("HEAL-5: refusals left: %v, %d earlier versions", w.refusing, w.source.Early())
	}
	w.mu.Unlock()
	rest := time.Now()
	time.Sleep(time.Hour)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for st, at := range w.sent {
		if at.After(rest) {
			w.Errorf("%s is sent something at rest", st.Node.ID)
		}
	}
}

// pass lets the clients answer, and then time pass.
func (w *fleet) pass(d time.Duration) {
	for busy := true; busy; {
		busy = false
		for _, c := range w.all {
			busy = c.answer() || busy
		}
	}
	time.Sleep(d)
}

// act does something at one step of 40: once in 20 s.
func (w *fleet) act() {
	if w.dice.IntN(40) > 0 {
		return
	}
	c := w.all[w.dice.IntN(len(w.all))]
	switch w.dice.IntN(8) {
	default:
		w.commit()
	case 0:
		c.start(w.dice.IntN(2) == 0)
	case 1:
		synctest.Wait()
		w.mu.Lock()
		st := w.streams[c.id]
		w.mu.Unlock()
		if st == nil {
			break // it has got nothing yet
		}
		t := fleetTypes[w.dice.IntN(2)]
		c.changed = time.Now()
		w.note("%s resends %s", c.id, t)
		w.source.Release(st, t, "")
		if _, err := st.Resend(w.Context(), t, ""); err != nil {
			w.Fatal(err)
		}
	}
}

// commit changes, reverts or deletes some resources. Some clients refuse a version for a while.
func (w *fleet) commit() {
	w.count++
	text := fmt.Sprint(w.count)
	var set []*xds.Resource
	gone := map[string]*xds.Type{}
	for range 1 + w.dice.IntN(3) {
		name, t := []string{"a", "b", "c", "d"}[w.dice.IntN(4)], xds.Cluster
		if w.dice.IntN(3) == 0 {
			name, t = []string{"l", "m"}[w.dice.IntN(2)], xds.Listener
		}
		is, before := text, w.past[name]
		switch w.dice.IntN(8) {
		case 0:
			is = ""
		case 1:
			if len(before) > 0 {
				is = before[w.dice.IntN(len(before))]
			}
		}
		if gone[name] != nil || slices.ContainsFunc(set, func(r *xds.Resource) bool { return r.Name == name }) {
			continue
		}
		w.past[name] = append(before, is)
		w.note("%s=%s", name, is)
		if is == "" {
			gone[name] = t
			continue
		}
		res := xds.NewResource(t, name, message(name, is))
		res.Refs = []xds.Ref{}
		if t.Is(xds.Listener) {
			res.Refs = []xds.Ref{{Type: xds.Cluster, Name: []string{"a", "b", "c", "d"}[len(is+name)%4]}}
		}
		set = append(set, res)
		for _, c := range w.all {
			if w.dice.IntN(3) == 0 && c.held[name] != is { // a client does not refuse what it has
				c.refuses[name+"="+is] = time.Now().Add(time.Duration(w.dice.IntN(600)) * time.Second)
			}
		}
	}
	if _, err := w.st.Update(func(tx *store.Tx) error {
		tx.Set(set...)
		for name, t := range gone {
			tx.Delete(t, name)
		}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	for _, c := range w.all {
		c.changed = time.Now()
	}
}

func (w *fleet) note(format string, args ...any) {
	w.Logf("%v %s", time.Since(fleetStart), fmt.Sprintf(format, args...))
}

// fleetStart is the start of the clock of synctest.
var fleetStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// start opens a stream. A client that resumes has kept its resources.
func (c *fleetClient) start(resumes bool) {
	before := c.client
	if before != nil {
		before.Close()
		synctest.Wait()
		c.mu.Lock()
		delete(c.streams, c.id)
		c.mu.Unlock()
	}
	c.note("%s starts (%s), resumes %v", c.id, c.agent, resumes)
	c.client = c.dial(c, c.conn, xdstest.WithNode(xds.Node{ID: c.id, UserAgentName: c.agent}), xdstest.WithTimeout(10*time.Hour))
	c.tries, c.hastened, c.changed = map[string][]time.Time{}, map[string]int{}, time.Now()
	if !resumes || before == nil {
		c.held = map[string]string{}
	}
	for _, t := range fleetTypes {
		if resumes && before != nil {
			c.client.Resume(t, before)
		} else {
			c.client.Subscribe(t, xds.Wildcard)
		}
	}
}

// answer answers one response of each type.
func (c *fleetClient) answer() (busy bool) {
	for _, t := range fleetTypes {
		synctest.Wait()
		c.mu.Lock()
		key := ""
		if st := c.streams[c.id]; st != nil {
			key = c.key(st, t)
		}
		due := c.unread[key] > 0
		if due {
			c.unread[key]--
		}
		c.mu.Unlock()
		if due {
			c.judge(c.client.Next(t))
			busy = true
		}
	}
	return busy
}

func textOf(r *xds.Resource) string { return string(r.Body[len(message(r.Name, "")):]) }

// judge answers a response.
func (c *fleetClient) judge(got *xdstest.Response) {
	var refused []string
	for _, res := range got.Resources {
		key := res.Name + "=" + textOf(res)
		if time.Now().Before(c.refuses[key]) {
			refused = append(refused, res.Name)
			c.tried(got.Type, key)
		}
	}
	for _, name := range refused {
		if len(refused) > 1 { // when one of them is withheld, the others are sent once more (HEAL-1)
			delete(c.tries, name+"="+textOf(got.Resource(name)))
		}
	}
	if got.Type.Is(xds.Cluster) && len(refused) == 0 {
		for key := range c.tries { // a listener is tried again when the client has accepted its cluster
			if key >= "l" {
				c.hastened[key] = 2
			}
		}
	}
	c.note("%s gets %s %v, refuses %v", c.id, got, texts(got), refused)
	if len(refused) > 0 {
		text := "no"
		if c.named {
			text = strings.Join(refused, " ")
		}
		c.client.NACK(got, text)
		if !c.judgesEach() {
			return
		}
	} else {
		c.client.ACK(got)
	}
	for _, name := range got.Removed {
		delete(c.held, name)
	}
	for name := range c.held {
		if c.sotw() && (name >= "l") == got.Type.Is(xds.Listener) && got.Resource(name) == nil {
			delete(c.held, name)
		}
	}
	for _, res := range got.Resources {
		if !slices.Contains(refused, res.Name) {
			c.held[res.Name] = textOf(res)
		}
	}
}

// judgesEach reports whether the client applies the other resources of a refused response. A full state then has
// the refused ones again (HEAL-1).
func (c *fleetClient) judgesEach() bool { return c.sotw() && strings.HasPrefix(c.agent, "gRPC") }

func texts(got *xdstest.Response) (all []string) {
	for _, res := range got.Resources {
		all = append(all, res.Name+"="+textOf(res))
	}
	return all
}

func (c *fleetClient) stream() *server.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[c.id]
}

func (c *fleetClient) sotw() bool { return c.stream().Variant == xds.SotW }

// tried checks the time since the last try of a refused version.
func (c *fleetClient) tried(t *xds.Type, key string) {
	now := time.Now()
	all := append(c.tries[key], now)
	c.tries[key] = all
	name, is, _ := strings.Cut(key, "=")
	if versions := c.past[name]; !c.named || len(all) < 2 || c.judgesEach() || versions[len(versions)-1] != is {
		return // or an earlier version, which others accepted or to which one of those refers
	}
	if !slices.ContainsFunc(c.source.Of(c.stream(), t), func(h Held) bool { return h.Name == name }) {
		c.tries[key] = nil // without an accepted version in its place, each complete set has it
		return
	}
	last := all[len(all)-2]
	if c.changed.After(last.Add(-time.Second)) {
		c.tries[key] = []time.Time{now}
		return
	}
	least := protocol.RetryDelay(len(all)-2, false, 0, 0)
	if c.hastened[key] > 0 {
		c.hastened[key]--
		least = minRetry
	}
	if now.Sub(last) < least {
		c.Errorf("HEAL-2: %s gets %s again after %v, try %d", c.id, key, now.Sub(last), len(all))
	}
}

// converged checks that the client has the newest version of each resource.
func (c *fleetClient) converged() {
	want := map[string]string{}
	for name, all := range c.past {
		if is := all[len(all)-1]; is != "" {
			want[name] = is
		}
	}
	if !maps.Equal(c.held, want) {
		c.Errorf("%s holds %v, want %v", c.id, c.held, want)
	}
}
