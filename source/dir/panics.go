package dir

import (
	"errors"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/panics"
)

// loadSafely calls load and returns a panic, for example of Options.Review, as an error. Nothing is
// committed then, and the next load tries again.
func (s *Source) loadSafely(load func() (Report, error)) (report Report, err error) {
	if p := panics.Do(func() { report, err = load() }); p != nil {
		p.Log(s.opts.Log, "load")
		s.err, err = p, p
		report, s.pending = Report{}, false
	}
	if !errors.Is(err, errUnsettled) && !errors.Is(err, errMissing) {
		s.failing.note(time.Now(), err)
	}
	return report, err
}

// readSafely calls file and returns a panic as a mistake in that file.
func (s *Source) readSafely(f found, old *file, force bool) (now *file) {
	if p := panics.Do(func() { now = s.readFile(f, old, force) }); p != nil {
		s.panicked(f.path, p)
		return &file{emptied: had(old), errs: []findings.Problem{{File: f.path, Code: findings.Other, Message: readerFailed + ": " + p.Value}}}
	}
	return now
}

func (s *Source) panicked(path string, p *panics.Panic) {
	p.Log(s.opts.Log, "file", slog.String("file", path))
}
