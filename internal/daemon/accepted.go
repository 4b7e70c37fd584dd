package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/faults"
	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
)

const (
	acceptedSoon = 200 * time.Millisecond // delay of a write after a change
	acceptedRest = 10 * time.Second       // minimum time between two writes, except the first ones after a start
	acceptedFast = 10                     // number of these first writes, a second apart
)

// An acceptedKeeper stores on disk which versions clients accepted, so that a client that starts after a
// restart of the server gets the version of its neighbours (HEAL-3).
type acceptedKeeper struct {
	keeper *lastgood.Keeper
	book   *evidence.Book
	log    *slog.Logger
	fault  *faults.Record // the last write failed
	due    bool           // the last evidence is not stored
	newer  bool           // a newer version wrote the file, which therefore stays
}

// restore reads the stored evidence. Call it before the first client.
func (a *acceptedKeeper) restore() {
	if a.keeper.WithoutSecrets {
		if err := a.keeper.RemoveAccepted(); err != nil {
			a.log.Warn("the stored accepted versions cannot be removed", "error", err)
		}
		return
	}
	data, err := a.keeper.LoadAccepted()
	if err == nil {
		err = a.book.Restore(data)
	}
	a.newer = errors.Is(err, lastgood.ErrNewer) || errors.Is(err, evidence.ErrNewer)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("the stored accepted versions cannot be used", "error", err, "hint", "clients that start now and refuse a version get no earlier one until other clients have accepted it")
	}
}

// run stores changes until ctx is done.
func (a *acceptedKeeper) run(ctx context.Context) {
	rest, changed := time.Second, a.book.Changed()
	var again <-chan time.Time // when to try again; nil: everything is stored
	for n := 0; ; n++ {
		if n == acceptedFast {
			rest = acceptedRest
		}
		select {
		case <-ctx.Done():
			select {
			case <-changed:
				a.due = true
			default:
			}
			if a.due {
				a.save(time.Now())
			}
			return
		case <-changed:
		case <-again:
		}
		sleep(ctx, acceptedSoon)
		start := time.Now()
		a.save(start)
		sleep(ctx, max(rest-acceptedSoon, 20*time.Since(start)))
		again = nil
		if a.due {
			again = time.After(acceptedRest)
		}
	}
}

func (a *acceptedKeeper) save(now time.Time) {
	if a.newer {
		return
	}
	data, err := a.book.Save(now, lastgood.MaxAccepted/2)
	if err == nil {
		err = a.keeper.SaveAccepted(data)
	}
	a.due = err != nil
	switch {
	case errors.Is(err, disk.ErrBusy): // the log has it for the configuration
	case !a.fault.Set(acceptedNotStored, err):
	case err != nil:
		a.log.Warn(acceptedNotStored, "error", err)
	default:
		a.log.Info("the accepted versions are stored again", "state", a.keeper.Dir())
	}
}

const acceptedNotStored = "the accepted versions are not stored: after a restart of this server, a client that starts and refuses a version may get no earlier one"
