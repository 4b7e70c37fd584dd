package protocoltest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A ClientConfig chooses the world of a client to simulate.
type ClientConfig struct {
	Seed    uint64
	Variant xds.Variant
	Server  string // one of Servers
	Choices []byte // replaces the seed, as in Config
}

// SimulateClient connects a [protocol.Client] to a server with a personality, over streams that break at any
// moment, and judges the client. It returns the number of responses that the client got, and a [*Failure] if
// the client broke a rule.
func SimulateClient(cfg ClientConfig) (responses int, err error) {
	responses, err = runServed(cfg, nil)
	if err != nil {
		f := &Failure{Config: Config{Seed: cfg.Seed, Variant: cfg.Variant, Choices: cfg.Choices}, Err: err}
		if _, again := runServed(cfg, (*story)(&f.Story)); again == nil {
			f.Err = fmt.Errorf("the failure did not occur again, so it depends on more than the seed: %w", err)
		}
		return responses, f
	}
	return responses, nil
}

func runServed(cfg ClientConfig, story *story) (n int, err error) {
	w := newServed(cfg, story)
	err = story.play(w.run)
	return w.got, err
}

// A served is the world of one client. The application changes its subscriptions. The server has changing
// content, and sends it as its personality allows.
type served struct {
	*story
	cfg     ClientConfig
	dice    dice
	now     time.Time
	client  *protocol.Client
	judge   *clientJudge
	server  *faker
	perType bool
	sour    byte            // resources whose body begins with this byte cannot be used, as the application has learned; 0: none
	streams map[string]bool // by type URL; "" is the aggregated one
	up      []xds.Request
	down    []*xds.Response
	got     int
}

// A servedKind is a type with the names that can be subscribed.
type servedKind struct {
	typ   *xds.Type
	names []string // of resources
	finds []string // other names that can be subscribed
}

var servedKinds = []servedKind{
	{typ: xds.Cluster, names: []string{"a", "b", "c", "d"}},
	{typ: xds.Endpoint, names: []string{"a", "b", "c"}},
	{typ: xds.Secret, names: []string{"s", "xdstp://a/s/x/1?k=v&l=w", "xdstp://a/s/x/2?k=v&l=w", "t"}, finds: []string{"alias", "t", "xdstp://a/s/x/*?k=v&l=w"}},
	{typ: xds.Listener, names: []string{"l", "m"}},
}

var errBad = errors.New("bad content")

func newServed(cfg ClientConfig, story *story) *served {
	w := &served{cfg: cfg, story: story, dice: newDice(cfg.Seed, 10+uint64(cfg.Variant)), now: epoch, streams: map[string]bool{}}
	if cfg.Choices != nil {
		w.dice = &bytesDice{slices.Clone(cfg.Choices)}
	}
	one := func(n int) bool { return w.dice.IntN(n) == 0 }
	opts := protocol.ClientOptions{Node: &xds.Node{ID: "n"}, Legacy: one(2), Retain: one(5), DropOnError: one(5), Transient: one(4)}
	opts.Timeout = []time.Duration{0, 0, 0, 3 * time.Second, -1}[w.dice.IntN(5)]
	opts.Check = func(r *xds.Resource) error {
		switch {
		case len(r.Body) > 0 && r.Body[0] == '!':
			panic("bad body")
		case w.unfit(r):
			return errBad
		}
		return nil
	}
	w.perType = one(4)
	w.client = protocol.NewClient(cfg.Variant, opts)
	w.judge = newClientJudge(w, opts)
	w.server = newFaker(w)
	w.client.Advance(w.now)
	w.logf("a world of %s, %s: per type %v, %+v", cfg.Server, cfg.Variant, w.perType, opts)
	return w
}

// run plays the random part. Then an honest server sends everything, and the application unsubscribes.
func (w *served) run() {
	steps := 60 + w.dice.IntN(100)
	if b, ok := w.dice.(*bytesDice); ok {
		steps = len(b.data) / 2
	}
	for range steps {
		w.step()
	}
	w.disconnect(nil)
	w.server.honest, w.server.silent, w.sour = true, false, 0
	w.connect()
	for range 200 {
		w.sendRequests()
		w.server.push()
		if !w.deliverDown() && len(w.up) == 0 {
			break
		}
		w.deliverUp()
	}
	if len(w.up)+len(w.down) > 0 {
		w.fail("traffic between client and server does not end")
	}
	w.judge.checkAtRest()
	for _, k := range servedKinds {
		w.client.Unsubscribe(k.typ, w.client.Wants(k.typ)...)
		w.judge.unsubscribe(k.typ, slices.Sorted(keys(w.judge.of(k.typ).subscribed))...)
	}
	w.sendRequests()
	w.judge.checkEmpty()
}

func (w *served) step() {
	k := servedKinds[w.dice.IntN(len(servedKinds))]
	switch n := w.dice.IntN(100); {
	case n < 4:
		w.disconnect(nil)
	case n < 6:
		if w.perType {
			w.disconnect(k.typ)
		}
	case n < 12:
		w.connect()
	case n < 26:
		w.changeSubscription(k)
	case n < 40:
		w.server.change(k)
	case n < 48:
		w.pass([]time.Duration{time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 16 * time.Second}[w.dice.IntN(5)])
	case n < 49:
		w.adopt(k)
	case n < 52:
		w.doubt(k)
	case n < 66:
		w.sendRequests()
	case n < 76:
		w.deliverUp()
	case n < 82:
		w.server.act(k)
	default:
		w.deliverDown()
	}
}

// changeSubscription lets the application subscribe or unsubscribe a name.
func (w *served) changeSubscription(k servedKind) {
	names := slices.Clone(k.names)
	if w.cfg.Variant == xds.Delta {
		names = append(names, k.finds...)
	}
	name := append(names, xds.Wildcard)[w.dice.IntN(len(names)+1)]
	if w.dice.IntN(3) == 0 {
		w.logf("unsubscribes %s %s", k.typ, name)
		w.client.Unsubscribe(k.typ, name)
		w.judge.unsubscribe(k.typ, name)
	} else {
		w.logf("subscribes %s %s", k.typ, name)
		spelled := name
		if name == "xdstp://a/s/x/1?k=v&l=w" {
			spelled = "xdstp://a/s/x/1?l=w&k=v"
		}
		w.client.Subscribe(k.typ, spelled)
		w.judge.subscribe(k.typ, name)
	}
	w.judge.compare()
}

// adopt gives the client a resource from another source.
func (w *served) adopt(k servedKind) {
	r := w.server.make(k, k.names[w.dice.IntN(len(k.names))])
	if w.unfit(r) {
		return
	}
	own := w.dice.IntN(2) == 0
	w.logf("adopts %s %s, own %v", k.typ, show(r), own)
	w.client.Adopt(k.typ, own, r)
	w.judge.adopts(k.typ, own, r)
	w.judge.compare()
}

// doubt lets the application learn that some resources are bad, or not bad any more, and request everything
// again.
func (w *served) doubt(k servedKind) {
	w.sour = []byte{0, '0', '1', '2', '3'}[w.dice.IntN(5)]
	w.logf("doubts %s: bodies that begin with %q are bad", k.typ, w.sour)
	w.client.Doubt(k.typ, append(slices.Clone(k.names), "alien")...)
	w.judge.doubts(k.typ)
	w.judge.compare()
}

// unfit reports whether the application cannot use a resource.
func (w *served) unfit(r *xds.Resource) bool {
	return len(r.Body) > 0 && (r.Body[0] == '!' || r.Body[0] == '?' || r.Body[0] == w.sour)
}

func (w *served) connect() {
	if !w.perType {
		if !w.streams[""] {
			w.logf("connects")
			w.streams[""] = true
			w.client.Connected(nil)
			w.judge.connected(nil)
		}
		return
	}
	for _, k := range servedKinds {
		if !w.streams[k.typ.URL] {
			w.logf("connects %s", k.typ)
			w.streams[k.typ.URL] = true
			w.client.Connected(k.typ)
			w.judge.connected(k.typ)
		}
	}
}

func (w *served) disconnect(only *xds.Type) {
	w.logf("disconnects %s", only)
	if only == nil {
		clear(w.streams)
		w.up, w.down = nil, nil
	} else {
		delete(w.streams, only.URL)
		w.up = slices.DeleteFunc(w.up, func(r xds.Request) bool { return r.Type.Is(only) })
		w.down = slices.DeleteFunc(w.down, func(r *xds.Response) bool { return r.Type.Is(only) })
	}
	w.client.Disconnected(only)
	w.judge.disconnected(only)
	w.server.disconnected(only)
	w.judge.compare()
}

// sendRequests lets the client send its requests.
func (w *served) sendRequests() {
	for r := range w.client.Requests() {
		w.logf("> %s", requestText(r))
		w.judge.checkRequest(r)
		w.up = append(w.up, r)
	}
	w.judge.checkAllSent()
	w.judge.compare()
}

func (w *served) deliverUp() {
	if len(w.up) > 0 {
		r := w.up[0]
		w.up = w.up[1:]
		w.server.receive(r)
	}
}

// deliverDown delivers the next response to the client.
func (w *served) deliverDown() bool {
	if len(w.down) == 0 {
		return false
	}
	r := w.down[0]
	w.down = w.down[1:]
	w.logf("< %s %v %v", (*responseText)(r), r.Errors, r.Malformed)
	w.got++
	w.judge.receive(r, w.client.Receive(r))
	w.judge.compare()
	return true
}

// pass lets time pass, and wakes the client at its deadlines.
func (w *served) pass(d time.Duration) {
	until := w.now.Add(d)
	for range 1000 {
		next := until
		if at := w.client.Deadline(); !at.IsZero() && at.Before(next) {
			next = at
		}
		w.now = next
		w.logf("the time is %v", w.now.Sub(epoch))
		w.client.Advance(w.now)
		w.judge.expire()
		w.judge.compare()
		if !w.now.Before(until) {
			return
		}
	}
	w.fail("deadlines follow each other without end")
}
