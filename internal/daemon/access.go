package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk"
)

const (
	accessInterval = time.Second // between two reads of the file
	maxAccessFile  = 1 << 20     // bytes
)

// A rulesFile is a file of access rules, or the roles file of the admin API. The server reads it again when it changes.
type rulesFile[P any] struct {
	path, flag string
	noun       string // of the content, in log lines
	parse      func(file string, data []byte) (*P, []findings.Problem)
	reads      disk.Reads

	// The running read owns these fields.
	last      []byte // content of the last read, valid or not
	lastError string // the last read error in the log

	rejected atomic.Pointer[rejection] // of the present content; nil: it is in use
}

// A rejection is the reason why a changed file is not in use.
type rejection struct {
	text  string
	since time.Time
}

// accessRules describes the file of access rules.
func accessRules(path string) *rulesFile[access.Policy] {
	return &rulesFile[access.Policy]{path: path, flag: "--access", noun: "access rules", parse: access.Parse}
}

// load reads the rules at the start. An error ends the program.
func (a *rulesFile[P]) load(log *slog.Logger, hint string) (*P, error) {
	b, err := a.read()
	if err != nil {
		return nil, cli.Fail(err, hint)
	}
	a.last = b
	p, problems := a.parse(a.path, b)
	for _, one := range problems {
		if one.Warning {
			log.Warn(a.noun+" warning", "problem", one.Error(), "code", string(one.CodeOrOther())) //nolint:sloglint // one of two messages
		}
	}
	if p == nil {
		return nil, cli.Fail(fmt.Errorf("%s: %s", a.flag, firstProblem(problems)), "")
	}
	log.Info(a.noun+" loaded", "file", a.path) //nolint:sloglint // one of two messages
	return p, nil
}

func (a *rulesFile[P]) read() ([]byte, error) {
	b, err := disk.ReadRegular(a.path, maxAccessFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.flag, err)
	}
	return b, nil
}

// run applies changed rules until ctx is done. Invalid rules have no effect.
func (a *rulesFile[P]) run(ctx context.Context, log *slog.Logger, set func(*P)) {
	a.repeat(ctx, log, func() { a.reload(log, set) })
}

// repeat calls reload until ctx is done. While a call hangs, it makes no other one.
func (a *rulesFile[P]) repeat(ctx context.Context, log *slog.Logger, reload func()) {
	tick := time.NewTicker(accessInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, first := a.reads.Do(ctx, time.Now(), 0, reload); first {
				log.Warn("a read of the "+a.noun+" does not end, using the last ones", "after", disk.ReadTime.String(), "file", a.path) //nolint:sloglint // one of two messages
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *rulesFile[P]) reload(log *slog.Logger, set func(*P)) {
	rejected := a.noun + " rejected, keeping the previous ones"
	b, err := a.read()
	if err != nil {
		if err.Error() != a.lastError {
			log.Error(rejected, "file", a.path, "error", err) //nolint:sloglint // one of two messages
		}
		a.lastError, a.last = err.Error(), nil
		a.reject(err.Error())
		return
	}
	if a.last != nil && bytes.Equal(a.last, b) {
		return
	}
	a.last, a.lastError = b, ""
	p, problems := a.parse(a.path, b)
	for _, one := range problems {
		if p == nil {
			log.Error(rejected, "file", a.path, "error", one.Error(), "code", string(one.CodeOrOther())) //nolint:sloglint // one of two messages
		} else {
			log.Warn(a.noun+" warning", "problem", one.Error(), "code", string(one.CodeOrOther())) //nolint:sloglint // one of two messages
		}
	}
	if p == nil {
		a.reject(firstProblem(problems))
		return
	}
	a.rejected.Store(nil)
	set(p)
	log.Info(a.noun+" loaded", "file", a.path) //nolint:sloglint // one of two messages
}

// reject records the reason of a rejection, for the status.
func (a *rulesFile[P]) reject(why string) {
	if was := a.rejected.Load(); was == nil || was.text != why {
		a.rejected.Store(&rejection{why, time.Now()})
	}
}

func firstProblem(problems []findings.Problem) string {
	if len(problems) == 0 {
		return "the rules are invalid"
	}
	if n := len(problems) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", problems[0].Text(), n)
	}
	return problems[0].Text()
}
