package daemon

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// sweepEvery is the minimum time between two sweeps of a server.
const sweepEvery = time.Hour

// A sweeper removes old revisions from a store.
type sweeper struct {
	repo  *revisions.Repository
	keep  int
	log   *slog.Logger
	swept func(revisions.Swept) // called after each sweep; may be nil
}

// run sweeps until ctx is done, or until the store denies permission. Sweeps are not urgent, so each
// server waits for a random time first. Of servers that start together, few then find old revisions.
func (s *sweeper) run(ctx context.Context) {
	lastError := ""
	for wait := rand.N(sweepEvery / 4); ; wait = sweepEvery + rand.N(sweepEvery/4) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := s.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, revisions.ErrDenied):
			s.log.Warn("no permission to sweep the store, not trying again", "error", err)
			return
		case err == nil, errors.Is(err, revisions.ErrBusy):
			lastError = ""
		case err.Error() != lastError:
			lastError = err.Error()
			s.log.Warn("cannot sweep the store", "error", err)
		}
	}
}

// sweep removes old revisions when the store has a tenth more revisions than it should keep. A sweep
// reads all kept revisions.
func (s *sweeper) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepEvery/2)
	defer cancel()
	due, err := s.repo.Due(ctx, s.keep)
	if err != nil || due < max(1, s.keep/10) {
		return err
	}
	result, err := s.repo.Sweep(ctx, s.keep)
	if result.Revisions+result.Packs > 0 {
		s.log.Info("store was swept", "oldest", result.Oldest.String(), "revisions", result.Revisions, "packs", result.Packs, "bytes", result.Bytes)
		if s.swept != nil {
			s.swept(result)
		}
	}
	return err
}
