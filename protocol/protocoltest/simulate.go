package protocoltest

import (
	"errors"
	"fmt"
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

	// Accept lets nobody refuse anything.
	Accept bool

	// Without is an excuse that is not to be had: worlds in which it alone turned the
	// verdict fail.
	Without Excuse

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
	Deliveries int            // responses that reached a client of a whole world
	Judged     int            // of these, after how many it was judged by "never breaks"
	Unjudged   map[Excuse]int // and after how many not, for each reason
	Excused    map[Excuse]int // how often each excuse alone turned a verdict
	// Held is what each client holds in the end of what exists: "CDS c0" and
	// its content. Nil for clients that fell silent, and for those of which it
	// depends on the variant what they ask for.
	Held []map[string]string
}

// Simulate runs a world, and returns a [*Failure] if an obligation was not met.
func Simulate(open Open, cfg Config) (Result, error) {
	w, err := live(open, cfg, nil)
	if err != nil {
		return Result{}, tell(open, cfg, err)
	}
	return w.result(), nil
}

// live runs a world.
func live(open Open, cfg Config, story *[]string) (w *world, err error) {
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
	w = newWorld(open, cfg, story)
	w.run()
	return w, nil
}

// tell runs the world again to hear its story.
func tell(open Open, cfg Config, err error) error {
	f := &Failure{Config: cfg, Err: err}
	if _, again := live(open, cfg, &f.Story); again != nil && again.Error() != err.Error() {
		f.Err = errors.Join(err, fmt.Errorf("and the second time, so it depends on more than the seed: %w", again))
	}
	return f
}

func (w *world) result() Result {
	res := Result{Messages: len(w.sent), Deliveries: w.deliveries, Judged: w.judged, Unjudged: w.unjudged, Excused: w.used}
	for _, n := range w.lanes {
		var out map[string]string
		if _, ok := n.client.(*generic); ok && !n.forever {
			out = map[string]string{}
			for _, k := range kinds {
				t := k.typ()
				if deltaOnly(t) {
					continue // nobody has these in SotW
				}
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
