package daemon

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/csds/live"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// quarantined is what clients see if what they refuse is kept from them.
func (s *serving) quarantined(st *store.Store, src func() *dir.Source) *quarantine.Source {
	judge := sync.OnceValue(func() *explain.Explainer { // the source is there before the first client
		return explain.New(explain.Deps{Tracker: s.admin.tracker, Source: src(), Snapshot: st.Snapshot})
	})
	guilty := func(ctx context.Context, stream *server.Stream, t *xds.Type, text string) []string {
		return judge().Guilty(ctx, stream, t, text)
	}
	var lines dedup.Counter
	told := func(h quarantine.Held, stream *server.Stream) {
		place := src().PlaceFor(stream.Node, h.Type, h.Name)
		tell := func(more ...any) {
			s.log.Warn("resource in quarantine: the client refuses it, and gets the others", append([]any{
				"node", shown(stream.Node.ID), "type", h.Type.String(), "resource", shown(h.Name), "at", place, "version", h.Refused, "instead", h.Instead, "by", h.By.String(),
			}, more...)...)
		}
		if lines.Allow("", h.Type.URL+" "+h.Name+" "+h.Refused, 1, func(n int, _ []string) { tell("repeated", n) }) {
			tell()
		}
		s.admin.tracker.Note(api.Event{
			At: time.Now(), Kind: "quarantine", Node: shown(stream.Node.ID), Stream: stream.ID, Type: h.Type.String(), Version: h.Refused, Text: quarantineText(h),
			Resources: []api.Resource{{Type: h.Type.String(), Name: h.Name, Place: place}},
		})
	}
	scope := func(n *xds.Node) string { return strings.Join(src().Decide(n).Groups, "\x00") }
	var moved func()
	if up, ok := s.source.(*relaying); ok && s.passRefusals {
		moved = func() { up.source.Refused() } // which is there before the first client
	}
	return quarantine.New(&s.identity, quarantine.Options{
		Moved:  moved,
		Guilty: guilty, Told: told, Scope: scope, Log: s.log,
		Ended: func(st *server.Stream, t *xds.Type) { s.admin.tracker.Forgive(st, t) }, // which is there before the first client
	})
}

// maxPassed is how many resources the upstream of a relay is told to be refused.
const maxPassed = 100

// passUp has the upstream of a relay told what is refused, if that is wanted.
func (s *serving) passUp(q *quarantine.Source) {
	up, ok := s.source.(*relaying)
	if !ok || !s.passRefusals {
		return
	}
	up.refused = func() (all []relay.Refusal) {
		for _, r := range q.Refused(maxPassed) {
			all = append(all, relay.Refusal(r))
		}
		return all
	}
}

// quarantineText says how it was found out that a resource is at fault, and what the client keeps.
func quarantineText(h quarantine.Held) string {
	if h.Instead == "" {
		return h.By.String() + "; the client gets the others without it"
	}
	return h.By.String() + "; the client keeps version " + h.Instead
}

// holds says whether anything of a type is kept from a stream; nil if nothing ever is.
func holds(q *quarantine.Source) func(*server.Stream, *xds.Type) bool {
	if q == nil {
		return nil
	}
	return func(st *server.Stream, t *xds.Type) bool { return len(q.Of(st, t)) > 0 }
}

// keptBy says, for status, what clients keep instead of what they have refused; nil if nothing is kept.
func keptBy(q *quarantine.Source) func(*server.Stream, *xds.Type) []api.Kept {
	if q == nil {
		return nil
	}
	return func(st *server.Stream, t *xds.Type) (all []api.Kept) {
		for _, h := range q.Of(st, t) {
			all = append(all, api.Kept{Name: h.Name, Refused: h.Refused, Kept: h.Instead, Why: h.By.String()})
		}
		return all
	}
}

// keptFrom says, for CSDS, what clients refuse while they are shown something else; nil if they never are.
func keptFrom(q *quarantine.Source) func(*server.Stream, *xds.Type) []live.Held {
	if q == nil {
		return nil
	}
	return func(st *server.Stream, t *xds.Type) (all []live.Held) {
		for _, h := range q.Of(st, t) {
			all = append(all, live.Held{Name: h.Name, Version: h.Refused, Body: h.Body, Waits: h.By == quarantine.Dependent})
		}
		return all
	}
}

// heldBy says, for explain, what is in quarantine; nil if nothing ever is.
func heldBy(q *quarantine.Source) func(*server.Stream, *xds.Type) []quarantine.Held {
	if q == nil {
		return nil
	}
	return q.Of
}
