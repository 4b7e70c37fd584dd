package revsource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

const (
	acceptedFormat   = 1                           // of the value
	acceptedTime     = 24 * time.Hour              // time for which the evidence of a server that has ended is kept
	acceptedRenewal  = time.Hour                   // interval at which a server states that its evidence is current
	acceptedInAll    = revisions.MaxValue * 9 / 10 // bytes of the evidence of all servers
	acceptedEntry    = 100                         // bytes of a part besides its evidence and the name of the server
	acceptedVersions = 20_000                      // versions of other servers whose content is looked for
	acceptedSearch   = 10 * time.Second            // minimum time between two searches in earlier revisions
)

// Evidence is which versions clients have accepted, as in [evidence.Book]. The bytes are JSON; nil: there is none.
type Evidence interface {
	Changed() <-chan struct{}
	Share(now time.Time, limit int) ([]byte, error)
	Learn(others iter.Seq2[time.Time, []byte], known func(group string, t *xds.Type, name, sum string) *xds.Resource)
}

// Accepted shares which versions clients have accepted among the servers of a repository (HEAL-3). A client
// that starts on one server then gets the version that clients of another server run on.
//
// All evidence is one value, with a part for each server. A server that may only read the repository learns
// from the others and shares nothing. Builds without this type ignore the value, and a server leaves a value
// of a newer format in place. The value has sums instead of content: each server takes the content from the
// revisions. So the right to write the value is not a right to commit. A sweep keeps these revisions.
type Accepted struct {
	engine   revisions.Engine
	source   *Source
	evidence Evidence
	server   string // name of the part of this server, also after a restart; no other server has it
	log      *slog.Logger

	read     []byte       // the value that was learned last
	earlier  acceptedPart // what an earlier run of this server shared
	limit    int          // maximum bytes of the evidence of all servers
	mine     []byte       // the evidence of this server, cut to its share; nil: none
	want     int          // size of the evidence of this server without a limit
	most     int          // the share of this server when mine was made
	due      bool         // mine may have changed
	known    known        // content that other servers' evidence needs
	searched time.Time    // the last search for it
	unknown  bool         // the log has that some content is not in the revisions
}

// NewAccepted returns a value that shares the evidence of a server. The source has the revisions. The name of the
// server should outlast a restart. [Accepted.Run] must run.
func NewAccepted(e revisions.Engine, source *Source, evidence Evidence, server string, log *slog.Logger) *Accepted {
	return &Accepted{engine: e, source: source, evidence: evidence, server: server, log: log, limit: acceptedInAll, due: true}
}

// An acceptedText is the stored form of the evidence. A server keeps the evidence of other servers as it is, but
// no other fields that it does not know: new fields belong into the evidence.
type acceptedText struct {
	Format  int                     `json:"format"`
	Servers map[string]acceptedPart `json:"servers"`
}

type acceptedPart struct {
	At       time.Time       `json:"at"`
	Want     int             `json:"want,omitempty"` // size of the evidence without a limit; 0: as large as it is
	Evidence json.RawMessage `json:"evidence"`
}

// Run reads the evidence of other servers and stores that of this server, until ctx is done.
func (a *Accepted) Run(ctx context.Context) {
	keepSynced(ctx, a.engine, revisions.AcceptedKey, a.evidence.Changed(), func(changed bool) error {
		a.due = a.due || changed
		return a.sync(ctx, time.Now())
	}, func(err error) {
		a.log.Warn("cannot share accepted versions with other servers", "error", err)
	})
}

// sync learns the stored evidence, and stores the evidence of this server if it has changed.
func (a *Accepted) sync(ctx context.Context, now time.Time) error {
	old, err := a.engine.Get(ctx, revisions.AcceptedKey)
	if err != nil && !errors.Is(err, revisions.ErrNotFound) {
		return err
	}
	is := acceptedText{Format: acceptedFormat}
	if err == nil {
		err := json.Unmarshal(old, &is) // sets the format even if a newer one has other fields
		switch {
		case is.Format > acceptedFormat:
			return fmt.Errorf("%s: %w", revisions.AcceptedKey, revisions.ErrNewer)
		case err != nil || is.Format != acceptedFormat:
			is = acceptedText{Format: acceptedFormat} // the value is invalid: begin with an empty one
		}
	}
	if is.Servers == nil {
		is.Servers = map[string]acceptedPart{}
	}
	is.expire(now)
	part, shared := is.Servers[a.server]
	if shared && a.mine == nil && !part.cut() {
		a.earlier = part
	}
	a.learn(ctx, now, old, &is)
	renew := shared && now.Sub(part.At) >= acceptedRenewal
	err = a.fit(now, &is, renew)
	if err != nil {
		return err
	}
	if a.mine == nil || shared && part.Want == a.want && bytes.Equal(part.Evidence, a.mine) && !renew {
		return nil // without evidence, the part of an earlier run stays
	}
	is.Servers[a.server] = acceptedPart{At: now, Want: a.want, Evidence: a.mine}
	is.bound(a.limit, a.server, now)
	value, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return a.engine.CompareAndSwap(ctx, revisions.AcceptedKey, old, value)
}

// fit makes the evidence of this server anew if it may have changed, or if its share has. A share that has grown by
// less than an eighth is no reason.
func (a *Accepted) fit(now time.Time, is *acceptedText, renew bool) error {
	whole := a.mine
	if a.due || renew {
		var err error
		whole, err = a.evidence.Share(now, a.limit)
		if err != nil {
			return err
		}
		a.want = len(whole)
	}
	most := is.share(a.limit, a.server, a.want)
	switch grown := most >= a.most+a.most/8; {
	case a.want <= most && len(whole) == a.want:
		a.mine = whole
	case a.due || renew || len(a.mine) > most || grown:
		mine, err := a.evidence.Share(now, most)
		if err != nil {
			return err
		}
		a.mine = mine
	default:
		return nil
	}
	a.most, a.due = most, false
	return nil
}

// learn passes the evidence of other servers, and of an earlier run of this one, to the evidence. It looks for
// missing content when the evidence or the revision is new.
func (a *Accepted) learn(ctx context.Context, now time.Time, value []byte, is *acceptedText) {
	if again := a.known.again(a.source.State()); !again && bytes.Equal(value, a.read) && len(a.known.missing) == 0 {
		return
	}
	a.read = value
	a.pass(is)
	if len(a.known.missing) == 0 || now.Sub(a.searched) < acceptedSearch || a.source.Served().Number == 0 {
		return
	}
	a.searched = now
	found, err := a.known.search(ctx, a.source)
	if found {
		a.pass(is)
	}
	a.report(err)
}

// pass passes the evidence on, with the known content.
func (a *Accepted) pass(is *acceptedText) {
	used := map[wanted]bool{}
	a.known.missing = nil
	a.evidence.Learn(is.others(a.server, a.earlier), func(group string, t *xds.Type, name, sum string) *xds.Resource {
		w := wanted{group, t, name, sum}
		if used[w] || len(used) >= acceptedVersions {
			return a.known.all[w]
		}
		used[w] = true
		return a.known.get(w)
	})
	a.known.keep(used)
}

// report logs once that the revisions do not have the content of a version.
func (a *Accepted) report(err error) {
	unknown := false
	for w, r := range a.known.all {
		if r != nil || w.typ.Is(xds.Endpoint) { // registered endpoints are in no revision
			continue
		}
		if !unknown && !a.unknown {
			a.log.Warn("accepted versions of other servers are not used: the revisions of the store do not have their content",
				"key", revisions.AcceptedKey, "type", w.typ.String(), "resource", w.name, "version", w.sum, "error", err)
		}
		unknown = true
	}
	a.unknown = unknown
}

// cut reports whether the evidence of the part was removed, because the value was too large.
func (p acceptedPart) cut() bool { return p.Evidence == nil || string(p.Evidence) == "null" }

// others returns the evidence of other servers, and of an earlier run of this server.
func (t *acceptedText) others(server string, earlier acceptedPart) iter.Seq2[time.Time, []byte] {
	return func(yield func(time.Time, []byte) bool) {
		for _, name := range slices.Sorted(maps.Keys(t.Servers)) {
			if p := t.Servers[name]; name != server && !p.cut() && !yield(p.At, p.Evidence) {
				return
			}
		}
		if earlier.Evidence != nil {
			yield(earlier.At, earlier.Evidence)
		}
	}
}

// expire removes the parts of servers that have ended long ago. A date in the future counts as now.
func (t *acceptedText) expire(now time.Time) {
	for name, p := range t.Servers {
		switch {
		case now.Sub(p.At) > acceptedTime:
			delete(t.Servers, name)
		case p.At.After(now):
			p.At = now
			t.Servers[name] = p
		}
	}
}

// size returns the approximate size of a part in the value.
func (p acceptedPart) size(name string) int { return len(name) + len(p.Evidence) + acceptedEntry }

// share returns the maximum size of the evidence of a server that wants a number of bytes: the space that servers that
// want less leave, in equal shares for the others. It depends only on what the servers want, not on the present sizes
// of their parts. So all servers come to the same result, and their parts to rest.
func (t *acceptedText) share(limit int, server string, want int) int {
	sizes := []int{len(server) + want + acceptedEntry}
	for name, p := range t.Servers {
		switch {
		case name == server:
		case p.cut() && p.Want == 0:
			sizes = append(sizes, limit) // the server stores it again
		default:
			sizes = append(sizes, max(p.size(name), len(name)+p.Want+acceptedEntry))
		}
	}
	slices.Sort(sizes)
	level := limit
	for i, size := range sizes {
		level = limit / (len(sizes) - i)
		if size > level {
			break
		}
		limit -= size
	}
	return level - acceptedEntry - len(server)
}

// bound cuts parts of other servers until the value is within the limit: first those of servers that have ended, the
// oldest one first, then the largest. A running server then stores its part again, in its share.
func (t *acceptedText) bound(limit int, server string, now time.Time) {
	size := 0
	for name, p := range t.Servers {
		size += p.size(name)
	}
	ended := func(name string) bool { return now.Sub(t.Servers[name].At) > 2*acceptedRenewal }
	names := slices.SortedFunc(maps.Keys(t.Servers), func(a, b string) int {
		switch p, q := t.Servers[a], t.Servers[b]; {
		case ended(a) && ended(b):
			return p.At.Compare(q.At)
		case ended(a):
			return -1
		case ended(b):
			return 1
		default:
			return cmp.Compare(q.size(b), p.size(a))
		}
	})
	for _, name := range names {
		if size <= limit || name == server {
			continue
		}
		size -= t.Servers[name].size(name)
		if ended(name) {
			delete(t.Servers, name)
			continue
		}
		t.Servers[name] = acceptedPart{At: t.Servers[name].At, Want: max(t.Servers[name].Want, len(t.Servers[name].Evidence))}
		size += t.Servers[name].size(name)
	}
}
