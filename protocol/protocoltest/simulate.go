package protocoltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// Config says which world to simulate.
type Config struct {
	Seed    uint64
	Variant xds.Variant

	// Client is the personality: "generic", "separate" (a stream per type),
	// "envoy", "grpc" or "wild". Empty: the seed decides.
	Client string

	// Whole makes each commit atomic and each reference resolve. Then no client
	// that answers in time may ever hold a route without its cluster. If not
	// set, the seed decides.
	Whole bool

	// More adds what worlds did not have before: the types of scopes, extension
	// configs, endpoints and runtime, and references to them and to secrets; clients
	// that drop what expires; late answers in SotW.
	More bool

	// Accept lets nobody refuse anything.
	Accept bool

	// Choices, if not nil, replaces the seed: every choice of the world is read
	// from these bytes, one step for each.
	Choices []byte
}

// A Failure is a world in which an obligation was not met.
type Failure struct {
	Config
	Err   error
	Story []string // all messages, commits and whims
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s\nseed %d, %s: %v", strings.Join(f.Story, "\n"), f.Seed, f.Variant, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// A Result is the end of a world.
type Result struct {
	Messages   int
	Deliveries int          // responses that reached a client of a whole world
	Judged     int          // of these, after how many it was judged by "never breaks"
	Undecided  map[Kind]int // it ended there, for a reason of this kind
	// Held is what each client holds in the end of what exists: "CDS c0" and
	// its content. Nil for clients that fell silent, and for those of which it
	// depends on the variant what they ask for.
	Held []map[string]string
}

// Simulate runs a world twice, with hints of what changed and without, and
// returns a [*Failure] if an obligation was not met or the two differ: "a hint
// may only save work".
func Simulate(open Open, cfg Config) (Result, error) {
	a, err := live(open, cfg, true, nil)
	if u, ok := errors.AsType[undecided](err); ok {
		return Result{Undecided: map[Kind]int{u.kind: 1}}, nil
	}
	if err != nil {
		return Result{}, tell(open, cfg, true, err)
	}
	b, err := live(open, cfg, false, nil)
	if err != nil {
		return Result{}, tell(open, cfg, false, err)
	}
	if err := equal(a.sent, b.sent); err != nil {
		return Result{}, tell(open, cfg, true, fmt.Errorf("a hint may only save work: %w", err))
	}
	return a.result(), nil
}

// live runs a world.
func live(open Open, cfg Config, hints bool, story *[]string) (w *world, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p.error
		default:
			if story != nil {
				*story = append(*story, "panic")
			}
			panic(p)
		}
	}()
	w = newWorld(open, cfg, hints, story)
	w.run()
	return w, nil
}

// tell runs the world again to hear its story.
func tell(open Open, cfg Config, hints bool, err error) error {
	f := &Failure{Config: cfg, Err: err}
	if _, again := live(open, cfg, hints, &f.Story); again != nil && again.Error() != err.Error() {
		f.Err = errors.Join(err, fmt.Errorf("and the second time, so it depends on more than the seed: %w", again))
	}
	return f
}

func equal(a, b []*xds.Response) error {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(b):
			return fmt.Errorf("message %d is sent with hints only: %s", i, describeResponse(a[i]))
		case i >= len(a):
			return fmt.Errorf("message %d is sent without hints only: %s", i, describeResponse(b[i]))
		case !equalResponse(a[i], b[i]):
			return fmt.Errorf("message %d is\n%s with hints, and without\n%s", i, describeResponse(a[i]), describeResponse(b[i]))
		}
	}
	return nil
}

func equalResponse(a, b *xds.Response) bool {
	same := func(x, y *xds.Resource) bool { return x.Name == y.Name && x.Sum == y.Sum }
	return a.Type.Is(b.Type) && a.Nonce == b.Nonce && a.Version == b.Version && a.TTL == b.TTL && slices.Equal(a.Removed, b.Removed) &&
		slices.Equal(a.Absent, b.Absent) && slices.Equal(a.Missing, b.Missing) &&
		slices.EqualFunc(a.Upserts, b.Upserts, same) && slices.EqualFunc(a.Beats, b.Beats, same)
}

func (w *world) result() Result {
	res := Result{Messages: len(w.sent), Deliveries: w.deliveries, Judged: w.judged}
	for _, n := range w.lanes {
		var out map[string]string
		if _, ok := n.client.(*generic); ok && !n.forever {
			out = map[string]string{}
			for _, k := range kinds {
				t := k.typ()
				for name, r := range n.client.held(t) {
					if w.content.view.Table(t).Lookup(name) != nil {
						out[t.Short+" "+name] = string(r.Body)
					}
				}
			}
		}
		res.Held = append(res.Held, out)
	}
	return res
}
