package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Options of a watcher. The zero value is ready to use.
type Options struct {
	// Servers are asked in this order, as IP:PORT; without any, those of /etc/resolv.conf.
	Servers []string
	// Timeout is the time that one server has for an answer; 2 s if zero. Each server is asked twice.
	Timeout time.Duration

	// MinTTL and MaxTTL bound the validity of an answer: 5 s and 5 min if zero.
	MinTTL, MaxTTL time.Duration
	// EmptyAfter is how long answers without records must continue before known addresses are removed; 1
	// min if zero. At least three such answers in a row are needed. Negative: never.
	EmptyAfter time.Duration

	// Most is how many questions are asked at once; 16 if zero.
	Most int
	// Log gets failed look-ups, and names that lost all addresses; slog.Default() if nil.
	Log *slog.Logger
	// Fault, if not nil, gets the look-ups that fail while the last addresses stay, after each change; "" if none does.
	Fault func(why string)
}

// A Watcher resolves names. It is made by [New].
type Watcher struct {
	opts    Options
	tracker *tracker // owned by Run's goroutine, once it runs
	report  func(Name, []Address)
	ask     func(context.Context, question) (answer, error)
	failing map[question]string // the errors of failing look-ups; owned as tracker is
	fault   string              // the last report to Options.Fault
}

// New returns a watcher of names. It reports all addresses of a name, in order, when they are found and
// whenever they change. It does not report a name that never had any.
func New(names []Name, report func(Name, []Address), o Options) (*Watcher, error) {
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.MinTTL, o.MaxTTL = cmp.Or(o.MinTTL, 5*time.Second), cmp.Or(o.MaxTTL, 5*time.Minute)
	o.EmptyAfter, o.Most, o.Log = cmp.Or(o.EmptyAfter, time.Minute), cmp.Or(o.Most, 16), cmp.Or(o.Log, slog.Default())
	switch {
	case o.Timeout < 0, o.Most < 0:
		return nil, errors.New("a limit is negative")
	case o.MinTTL < 10*time.Millisecond || o.MaxTTL < o.MinTTL:
		return nil, errors.New("the bounds of a TTL must be at least 10ms, and the lower one no more than the other")
	}
	for _, s := range o.Servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			return nil, fmt.Errorf("server %q: write IP:PORT", s)
		}
	}
	w := &Watcher{opts: o, report: report, failing: map[question]string{}}
	w.ask = w.opts.lookUp
	w.tracker = newTracker(&w.opts, rand.Float64)
	for _, n := range names {
		n, err := n.normal()
		if err != nil {
			return nil, err
		}
		w.tracker.follow(time.Time{}, n)
	}
	return w, nil
}

// Known sets, before Run, the addresses that a name had earlier. They count until an answer changes them,
// so that a start without an answer removes nothing.
func (w *Watcher) Known(n Name, all []Address) {
	if f := w.tracker.names[n]; f != nil {
		w.tracker.addKnown(time.Time{}, f, all)
	}
}

// Run resolves the names until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	type asked struct {
		question
		answer
		err error
	}
	answers := make(chan asked)
	var asking sync.WaitGroup
	defer asking.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for at := 0; ; {
		for ; at < w.opts.Most; at++ {
			q, due := w.tracker.next(time.Now())
			if !due {
				break
			}
			asking.Go(func() {
				a, err := w.ask(ctx, q)
				select {
				case answers <- asked{q, a, err}:
				case <-ctx.Done():
				}
			})
		}
		timer.Stop()
		if when, is := w.tracker.deadline(); is && at < w.opts.Most {
			timer.Reset(time.Until(when))
		}
		select {
		case a := <-answers:
			at--
			w.take(w.tracker.answered(time.Now(), a.question, a.answer, a.err), a.question, a.answer)
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// take logs and reports the outcome of an answer.
func (w *Watcher) take(is outcome, q question, a answer) {
	reason := "no such records"
	if a.unknown {
		reason = "NXDOMAIN: the name does not exist"
	}
	switch {
	case is.failing:
		w.opts.Log.Warn("DNS look-up failed: the last addresses stay", "question", q.String(), "error", is.err)
	case is.missing:
		after := "never"
		if w.opts.EmptyAfter >= 0 {
			after = w.opts.EmptyAfter.String()
		}
		w.opts.Log.Warn("DNS name has no records: its last addresses stay until that is confirmed", "question", q.String(), "reason", reason, "after", after)
	case is.absent:
		w.opts.Log.Warn("DNS name has no address: nothing is registered", "name", q.host, "question", q.String(), "reason", reason)
	case is.recovered:
		w.opts.Log.Info("DNS look-up succeeds again", "question", q.String())
	}
	if is.emptied {
		w.opts.Log.Warn("DNS name has no records, its addresses were removed", "question", q.String(), "reason", reason, "after", w.opts.EmptyAfter.String())
	}
	for _, f := range is.tooMany {
		w.opts.Log.Warn("DNS name has too many addresses: the last addresses stay", "name", f.name.String(), "most", maxFound)
	}
	w.noteFault(is, q, reason)
	for _, f := range is.changed {
		w.opts.Log.Info("addresses of a DNS name changed", "name", f.name.String(), "addresses", len(f.found))
		w.report(f.name, slices.Clone(f.found))
	}
}

// noteFault reports a change of the failing look-ups (SAFE-17).
func (w *Watcher) noteFault(is outcome, q question, reason string) {
	switch {
	case is.failing:
		w.failing[q] = is.err.Error()
	case is.missing:
		w.failing[q] = reason
	case is.recovered, is.emptied:
		delete(w.failing, q)
	}
	var all []string
	for q, why := range w.failing {
		if w.tracker.lookups[q] == nil { // no name needs it any more
			delete(w.failing, q)
			continue
		}
		all = append(all, q.String()+": "+why)
	}
	fault := ""
	if len(all) > 0 {
		fault = "DNS look-ups fail, so the last addresses stay: " + slices.Min(all)
	}
	if len(all) > 1 {
		fault += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	if fault != w.fault && w.opts.Fault != nil {
		w.opts.Fault(fault)
	}
	w.fault = fault
}
