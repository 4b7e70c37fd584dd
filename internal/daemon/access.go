package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
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

// An accessFile is a file of access rules. The server reads it again when it changes.
type accessFile struct {
	path  string
	reads disk.Reads

	// The running read owns these fields.
	last      []byte // content of the last read, valid or not
	lastError string // the last read error in the log
}

// load reads the rules at the start. An error ends the program.
func (a *accessFile) load(log *slog.Logger) (*access.Policy, error) {
	b, err := a.read()
	if err != nil {
		return nil, cli.Fail(err, "--access names the file with the rules, or is \"any\"")
	}
	a.last = b
	p, problems := access.Parse(a.path, b)
	for _, one := range problems {
		if one.Warning {
			log.Warn("access rules warning", "problem", one.Error(), "code", string(one.CodeOrOther()))
		}
	}
	if p == nil {
		return nil, cli.Fail(fmt.Errorf("--access: %s", firstProblem(problems)), "")
	}
	log.Info("access rules loaded", "file", a.path)
	return p, nil
}

func (a *accessFile) read() ([]byte, error) {
	b, err := disk.ReadRegular(a.path, maxAccessFile)
	if err != nil {
		return nil, fmt.Errorf("--access: %w", err)
	}
	return b, nil
}

// run applies changed rules until ctx is done. Invalid rules have no effect.
func (a *accessFile) run(ctx context.Context, log *slog.Logger, set func(*access.Policy)) {
	a.repeat(ctx, log, func() { a.reload(log, set) })
}

// repeat calls reload until ctx is done. While a call hangs, it makes no other one.
func (a *accessFile) repeat(ctx context.Context, log *slog.Logger, reload func()) {
	tick := time.NewTicker(accessInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, first := a.reads.Do(ctx, time.Now(), 0, reload); first {
				log.Warn("a read of the access rules does not end, using the last rules", "after", disk.ReadTime.String(), "file", a.path)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *accessFile) reload(log *slog.Logger, set func(*access.Policy)) {
	const rejected = "access rules rejected, keeping the previous ones"
	b, err := a.read()
	if err != nil {
		if err.Error() != a.lastError {
			log.Error(rejected, "file", a.path, "error", err)
		}
		a.lastError, a.last = err.Error(), nil
		return
	}
	if a.last != nil && bytes.Equal(a.last, b) {
		return
	}
	a.last, a.lastError = b, ""
	p, problems := access.Parse(a.path, b)
	for _, one := range problems {
		if p == nil {
			log.Error(rejected, "file", a.path, "error", one.Error(), "code", string(one.CodeOrOther()))
		} else {
			log.Warn("access rules warning", "problem", one.Error(), "code", string(one.CodeOrOther()))
		}
	}
	if p != nil {
		set(p)
		log.Info("access rules loaded", "file", a.path)
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
