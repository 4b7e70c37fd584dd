package dir

import (
	"context"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// Run reloads the directory whenever it has changed, until ctx is done. It is
// called after Load, also if that has failed: then it loads as soon as the files are good.
func (s *Source) Run(ctx context.Context) {
	w := watch.NewWatcher(s.opts.Log, s.opts.Poll)
	defer w.Close()
	pace := watch.Pace{Quiet: 100 * time.Millisecond, Most: 2 * time.Second, Poll: s.opts.Poll}
	for o, ok := (order{}), true; ok; { // at first what changed since Load, and to watch
		o, ok = watch.Wait(ctx, pace, w.Bell(), s.force, s.reload(o, w))
	}
}

// reload loads, and returns when to load again though nothing hints at a change;
// the zero time if it need not be sooner than usual.
func (s *Source) reload(o order, w *watch.Watcher) time.Time {
	was := s.err
	s.failing.moved = false
	w.Begin()
	report, err := s.guarded(o, &scanner{enter: w.Enter, touch: w.Touch})
	w.End()
	s.deaf.Store(w.Deaf())
	s.done(report, err)
	s.warn()
	switch {
	case err == nil && (o.force || was != nil || len(report.Commit.Changes) > 0):
		attrs := report.Attrs()
		if o.approve { // who asks later where it all went finds who allowed it
			attrs = append(attrs, "removals", "approved")
		}
		s.opts.Log.Info("loaded", attrs...)
	case err != nil && (o.force || was == nil || was.Error() != err.Error() || s.failing.due(time.Now())):
		s.Tell(err)
	}
	if err == nil {
		s.tellKept(time.Now(), o.force)
	}
	s.holding(time.Now())
	if o.done != nil {
		o.done <- outcome{report, err}
	}
	if err != nil {
		return time.Time{}
	}
	return s.again()
}

// again returns when to look again at what is held, the zero time if nothing is.
func (s *Source) again() (at time.Time) {
	for _, p := range s.parts {
		if t := p.removals.again; !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

// warn logs the warnings that it has not logged yet.
func (s *Source) warn() {
	doubts := s.doubts()
	now := make(map[string]bool, len(doubts))
	for _, p := range doubts {
		line := p.Error()
		if now[line] = true; !s.told[line] {
			p.Warning = false // the level says it
			s.opts.Log.Warn("configuration warning", "code", p.CodeOrOther(), "problem", p.Error())
		}
	}
	s.told = now
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
	if r.Kept != nil {
		attrs = append(attrs, "groups_rejected", len(r.Kept))
	}
	var set, removed int
	for _, c := range r.Commit.Changes {
		set += c.Set
		removed += c.Removed
	}
	return append(attrs, "set", set, "removed", removed, "took", r.Took.Round(time.Millisecond).String())
}
