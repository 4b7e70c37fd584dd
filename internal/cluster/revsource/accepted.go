package revsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

const (
	acceptedKey     = "accepted"
	acceptedFormat  = 1                           // of the value
	acceptedTime    = 24 * time.Hour              // time for which the evidence of a server that has ended is kept
	acceptedRenewal = time.Hour                   // interval at which a server states that its evidence is current
	acceptedInAll   = revisions.MaxValue * 9 / 10 // bytes of the evidence of all servers, in equal shares
)

// Evidence is which versions clients have accepted, as in [evidence.Book]. The bytes are JSON.
type Evidence interface {
	Changed() <-chan struct{}
	Save(now time.Time, limit int) ([]byte, error)
	Learn(others [][]byte)
}

// Accepted shares which versions clients have accepted among the servers of a repository (HEAL-3). A client
// that starts on one server then gets the version that clients of another server run on.
//
// All evidence is one value, with a part for each server. A server that may only read the repository learns
// from the others and shares nothing. Builds without this type ignore the value, and a server leaves a value
// of a newer format in place. The value has the bodies of replaced versions, so it does not depend on the
// revisions that a sweep keeps.
type Accepted struct {
	engine   revisions.Engine
	evidence Evidence
	server   string // name of the part of this server
	log      *slog.Logger

	read []byte // the value that was learned last
	mine []byte // the evidence of this server; nil: not shared yet
	most int    // the maximum size of mine
	due  bool   // mine may have changed
}

// NewAccepted returns a value that shares the evidence of a server. [Accepted.Run] must run.
func NewAccepted(e revisions.Engine, evidence Evidence, server string, log *slog.Logger) *Accepted {
	return &Accepted{engine: e, evidence: evidence, server: server, log: log, due: true}
}

// An acceptedText is the stored form of the evidence. A server keeps the evidence of other servers as it is, but
// no other fields that it does not know: new fields belong into the evidence.
type acceptedText struct {
	Format  int                     `json:"format"`
	Servers map[string]acceptedPart `json:"servers"`
}

type acceptedPart struct {
	At       time.Time       `json:"at"`
	Evidence json.RawMessage `json:"evidence"`
}

// Run reads the evidence of other servers and stores that of this server, until ctx is done.
func (a *Accepted) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	rings, changed := a.engine.Watch(ctx, acceptedKey), a.evidence.Changed()
	defer func() {
		cancel()
		for range rings { // the engine closes the channel when its watch has ended
		}
	}()
	said := false
	for {
		select {
		case <-changed:
			a.due = true
		default:
		}
		switch err := a.sync(ctx, time.Now()); {
		case err == nil:
			said = false
		case ctx.Err() == nil && !errors.Is(err, revisions.ErrConflict) && !said:
			said = true
			a.log.Warn("cannot share accepted versions with other servers", "error", err)
		}
		if !wait(ctx, refusalsWait, nil, nil) {
			return
		}
		t := time.NewTimer(refusalsPoll)
		select {
		case <-changed:
			a.due = true
		case <-rings:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// sync learns the stored evidence, and stores the evidence of this server if it has changed.
func (a *Accepted) sync(ctx context.Context, now time.Time) error {
	old, err := a.engine.Get(ctx, acceptedKey)
	if err != nil && !errors.Is(err, revisions.ErrNotFound) {
		return err
	}
	is := acceptedText{Format: acceptedFormat}
	if err == nil {
		err := json.Unmarshal(old, &is) // sets the format even if a newer one has other fields
		switch {
		case is.Format > acceptedFormat:
			return fmt.Errorf("%s: %w", acceptedKey, revisions.ErrNewer)
		case err != nil || is.Format != acceptedFormat:
			is = acceptedText{Format: acceptedFormat} // the value is invalid: begin with an empty one
		}
	}
	if is.Servers == nil {
		is.Servers = map[string]acceptedPart{}
	}
	if !bytes.Equal(old, a.read) {
		a.read = old
		a.evidence.Learn(is.others(a.server))
	}
	part, shared := is.Servers[a.server]
	if most := share(len(is.Servers) + 1); a.due || most != a.most {
		a.most = most
		a.mine, err = a.evidence.Save(now, most)
		if err != nil {
			return err
		}
		a.due = false
	}
	if shared && bytes.Equal(part.Evidence, a.mine) && now.Sub(part.At) < acceptedRenewal {
		return nil
	}
	is.Servers[a.server] = acceptedPart{now, a.mine}
	is.bound(a.server, now)
	value, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return a.engine.CompareAndSwap(ctx, acceptedKey, old, value)
}

// share returns the bytes for each of n servers. It changes only when n passes a power of two, so that a
// server that restarts does not make all others write again.
func share(n int) int { return acceptedInAll >> bits.Len(uint(n)) }

// others returns the evidence of other servers.
func (t *acceptedText) others(server string) (all [][]byte) {
	for _, name := range slices.Sorted(maps.Keys(t.Servers)) {
		if name != server {
			all = append(all, t.Servers[name].Evidence)
		}
	}
	return all
}

// bound removes old parts of other servers, and the oldest ones beyond the limit.
func (t *acceptedText) bound(server string, now time.Time) {
	maps.DeleteFunc(t.Servers, func(_ string, p acceptedPart) bool { return now.Sub(p.At) > acceptedTime })
	size := 0
	for name, p := range t.Servers {
		size += len(name) + len(p.Evidence) + 100
	}
	for _, name := range slices.SortedFunc(maps.Keys(t.Servers), func(a, b string) int { return t.Servers[a].At.Compare(t.Servers[b].At) }) {
		if size > acceptedInAll && name != server {
			size -= len(name) + len(t.Servers[name].Evidence) + 100
			delete(t.Servers, name)
		}
	}
}
