package dir

import (
	"errors"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/findings"
)

// remind is how often the log repeats that the files are rejected.
const remind = 5 * time.Minute

// A failing describes a series of failed loads. The zero value: the last load succeeded.
type failing struct {
	since  time.Time // zero: the last load succeeded
	logged time.Time // when the failure was last logged
	moved  bool      // files changed since the last load
}

// note records the result of a load.
func (f *failing) note(now time.Time, err error) {
	switch {
	case err == nil:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
	}
}

// due reports whether to log the failure again: the files changed without any effect, or the last line
// is older than remind.
func (f *failing) due(now time.Time) bool { return f.moved || now.Sub(f.logged) >= remind }

// LogError logs why nothing was loaded, with a line for each error. Run does the same when loads begin to
// fail, at each change of the files, and every five minutes.
func (s *Source) LogError(err error) {
	if _, ok := errors.AsType[RejectedGroups](err); ok {
		s.logRejected(time.Now(), true)
		return
	}
	s.failing.logged = time.Now()
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

// allWarnings returns all warnings, sorted by place. Options.MaxProblems limits them; the last one counts the
// rest.
func (s *Source) allWarnings() []findings.Problem {
	return s.summary("warning", s.counted(slices.Concat(s.warnings, s.missing)), s.omittedWarnings)
}
