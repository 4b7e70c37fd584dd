package dir

import (
	"errors"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/findings"
)

// remind is how often the log says again that what is served is not what the files say.
const remind = 5 * time.Minute

// A failing is what is known of loads that fail, one after the other. The zero value:
// none does.
type failing struct {
	since time.Time // zero: the last load did not fail
	told  time.Time // when the log last said so
	moved bool      // files have changed since the last load
}

// note notes how a load ended.
func (f *failing) note(now time.Time, err error) {
	switch {
	case err == nil:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
	}
}

// due reports whether the log is to say once more what it has said: somebody has changed
// the files, and sees nothing of it, or it is long ago.
func (f *failing) due(now time.Time) bool { return f.moved || now.Sub(f.told) >= remind }

// Tell logs why nothing was loaded, error by error, as Run does: when it fails, at
// each change while it does, and every five minutes.
func (s *Source) Tell(err error) {
	if _, ok := errors.AsType[Kept](err); ok {
		s.tellKept(time.Now(), true)
		return
	}
	s.failing.told = time.Now()
	since := s.failing.since.UTC().Format(time.RFC3339)
	errs, ok := errors.AsType[Errors](err)
	if !ok {
		s.opts.Log.Error("reload rejected, keeping the previous configuration", "error", err, "since", since)
		return
	}
	s.opts.Log.Error("reload rejected, keeping the previous configuration", "errors", errs.Count(), "since", since)
	for _, e := range errs {
		s.opts.Log.Error("configuration error", "code", e.CodeOrOther(), "error", e.Error())
	}
}

// doubts are all warnings, sorted by place; of many the first, and how many more.
func (s *Source) doubts() []findings.Problem {
	return s.summary("warning", s.counted(slices.Concat(s.warnings, s.missing)), s.untold)
}
