package protocoltest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A Config chooses the world to simulate.
type Config struct {
	Seed    uint64
	Variant xds.Variant

	// Client is the kind of client: "generic", "separate" (a stream per type), "envoy", "grpc", "finder" or
	// "wild". Empty: the seed decides.
	Client string

	// Whole makes each commit atomic and each reference resolve. Then no client that answers in time may ever
	// hold a route without its cluster. False: the seed decides.
	Whole bool

	// Accept makes every client accept every response.
	Accept bool

	// Choices, if not nil, replaces the seed: every choice of the world is read from these bytes.
	Choices []byte
}

// A Failure is a world in which a rule was broken.
type Failure struct {
	Config
	Err   error
	Story []string // all messages, commits and changes of subscriptions
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s\nseed %d, %s: %v", strings.Join(f.Story, "\n"), f.Seed, f.Variant, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// A Result summarizes a world.
type Result struct {
	Messages   int
	Deliveries int // responses delivered to a client of a whole world
	Judged     int // deliveries after which "never breaks" was judged
	// Held is what each client holds at the end of the existing resources: "CDS c0" and its content. It is nil
	// for clients that stopped answering, and for those whose subscriptions depend on the variant.
	Held []map[string]string
}

// Simulate plays a world, and returns a [*Failure] if a rule was broken.
func Simulate(open Open, cfg Config) (Result, error) {
	w, err := runWorld(open, cfg, nil)
	if err != nil {
		return Result{}, withStory(open, cfg, err)
	}
	return w.result(), nil
}

// runWorld plays a world.
func runWorld(open Open, cfg Config, story *story) (w *world, err error) {
	err = story.play(func() {
		w = newWorld(open, cfg, story)
		w.run()
	})
	return w, err
}

// withStory plays the world again to record its story.
func withStory(open Open, cfg Config, err error) error {
	f := &Failure{Config: cfg, Err: err}
	if _, again := runWorld(open, cfg, (*story)(&f.Story)); again != nil && again.Error() != err.Error() {
		f.Err = errors.Join(err, fmt.Errorf("the second run failed in another way, so it depends on more than the seed: %w", again))
	}
	return f
}

func (w *world) result() Result {
	res := Result{Messages: len(w.sent), Deliveries: w.deliveries, Judged: w.judged}
	for _, n := range w.lanes {
		var out map[string]string
		if _, ok := n.client.(*generic); ok && !n.forever {
			out = map[string]string{}
			for _, k := range kinds {
				t := k.typ()
				if deltaOnly(t) {
					continue // not served in SotW
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
