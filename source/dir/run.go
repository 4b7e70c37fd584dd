package dir

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// Run reloads the directory whenever it changes, until ctx is done. Call it after Load, also if Load
// failed: then Run loads as soon as the files are valid.
func (s *Source) Run(ctx context.Context) {
	w := watch.NewWatcher(s.opts.Log, s.opts.Poll)
	defer w.Close()
	s.run(ctx, w)
}

func (s *Source) run(ctx context.Context, w *watch.Watcher) {
	pace := watch.Pace{Poll: s.opts.Poll, Delay: func(first time.Time) (time.Duration, watch.Cause) { return s.delay(w, first) }}
	refusable := newRefusableLog(s)
	var running sync.WaitGroup
	defer running.Wait()
	if !s.opts.Validate { // otherwise a load refuses the findings
		running.Go(func() { refusable.run(ctx) })
	}
	for o, why := (order{}), watch.Polled; why != watch.Ended; { // the first round finds what changed since Load, and begins to watch
		next := s.reload(s.ofRun(o, why, w), w)
		refusable.offer()
		o, why = watch.Wait(ctx, pace, w.Bell(), s.force, next)
	}
}

// reload loads, and returns when to load again even without a change of the files. The zero time
// means: not before the next regular look.
func (s *Source) reload(o order, w *watch.Watcher) time.Time {
	start, was := time.Now(), s.err
	s.failing.moved = s.pending && s.failing.moved
	report, err := s.loadSafely(func() (Report, error) {
		if o.replaced != "" {
			defer w.Ring() // so that a look at all files follows
			return s.loadReplaced(o.replaced)
		}
		w.Begin()
		defer w.End()
		return s.load(o, &scanner{enter: w.Enter, touch: w.Touch})
	})
	s.missesChanges.Store(w.MissesChanges())
	if s.failing.moved {
		s.last.at, s.last.took = time.Now(), time.Since(start)
	}
	if !o.force && len(report.Commit.Changes) > 0 && !s.last.again {
		s.last.commits++
	}
	switch {
	case errors.Is(err, errUnsettled):
		w.Ring() // so that Run loads when the files are quiet
		return s.waiting.until()
	case errors.Is(err, errMissing):
		return s.waiting.until()
	}
	s.waiting = missingWaiting{}
	s.done(report, err)
	s.warn()
	switch {
	case err == nil && (o.force || was != nil || len(report.Commit.Changes) > 0):
		attrs := report.Attrs()
		if o.approve { // so that the log shows who allowed the removals
			attrs = append(attrs, "removals", "approved")
		}
		s.opts.Log.Info("loaded", attrs...)
	case err != nil && (o.force || was == nil || was.Error() != err.Error() || s.failing.due(time.Now())):
		s.LogError(err)
	}
	if err == nil {
		s.logRejected(time.Now(), o.force)
	}
	s.logDelayed(time.Now())
	if o.done != nil {
		o.done <- outcome{report, err}
	}
	if err != nil {
		return time.Time{}
	}
	return s.nextLook()
}

// nextLook returns when to look again at delayed removals; the zero time if there are none.
func (s *Source) nextLook() (at time.Time) {
	for _, p := range s.parts {
		if t := p.removals.again; !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

// warn logs the warnings that were not logged yet.
func (s *Source) warn() {
	doubts := s.allWarnings()
	now := make(map[string]bool, len(doubts))
	for _, p := range doubts {
		line := p.Error()
		now[line] = true
		if !s.loggedWarnings[line] {
			p.Warning = false // the log level replaces the prefix "warning"
			s.opts.Log.Warn("configuration warning", "code", p.CodeOrOther(), "problem", p.Error())
		}
	}
	s.loggedWarnings = now
}

// Attrs returns the report as attributes of a log line.
func (r Report) Attrs() []any {
	var total int
	var types []any
	for _, c := range r.Counts {
		types = append(types, slog.Int(c.Type.String(), c.N))
		total += c.N
	}
	attrs := []any{"files", r.Files, "resources", total, slog.Group("types", types...)}
	if r.Groups > 0 {
		attrs = append(attrs, "groups", r.Groups)
	}
	if r.Rejected != nil {
		attrs = append(attrs, "groups_rejected", len(r.Rejected))
	}
	var set, removed int
	for _, c := range r.Commit.Changes {
		set += c.Set
		removed += c.Removed
	}
	return append(attrs, "set", set, "removed", removed, "took", r.Took.Round(time.Millisecond).String())
}
