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
	"github.com/chancery-xds/chancery/xds"
)

// quarantined is a source of what clients see that keeps from them what they refuse. moved is called when what they refuse has
// changed; nil: nobody is told.
func newQuarantine(of server.Source[server.Watch], sv *services, src func() *dir.Source, moved func()) *quarantine.Source {
	judge := sync.OnceValue(func() *explain.Explainer { // the source is there before the first client
		return explain.New(explain.Deps{Tracker: sv.view.tracker, Source: src(), Snapshot: sv.store.Snapshot})
	})
	guilty := func(ctx context.Context, stream *server.Stream, t *xds.Type, text string) []string {
		return judge().Guilty(ctx, stream, t, text)
	}
	var lines dedup.Counter
	told := func(h quarantine.Held, stream *server.Stream) {
		place := src().PlaceFor(stream.Node, h.Type, h.Name)
		tell := func(more ...any) {
			sv.log.Warn("resource in quarantine: the client refuses it, and gets the others", append([]any{
				"node", logText(stream.Node.ID), "type", h.Type.String(), "resource", logText(h.Name), "at", place, "version", h.Refused, "instead", h.Instead, "by", h.By.String(),
			}, more...)...)
		}
		if lines.Allow("", h.Type.URL+" "+h.Name+" "+h.Refused, 1, func(n int, _ []string) { tell("repeated", n) }) {
			tell()
		}
		sv.view.tracker.Note(api.Event{
			At: time.Now(), Kind: "quarantine", Node: logText(stream.Node.ID), Stream: stream.ID, Type: h.Type.String(), Version: h.Refused, Text: quarantineText(h),
			Resources: []api.Resource{{Type: h.Type.String(), Name: h.Name, Place: place}},
		})
	}
	scope := func(n *xds.Node) string { return strings.Join(src().Decide(n).Groups, "\x00") }
	return quarantine.New(of, quarantine.Options{
		Moved:  moved,
		Guilty: guilty, Told: told, Scope: scope, Log: sv.log,
		Ended: func(st *server.Stream, t *xds.Type) { sv.view.tracker.ClearRefusal(st, t) }, // which is there before the first client
	})
}

// maxPassed is how many resources the upstream of a relay is told to be refused.
const maxPassedRefusals = 100

// refusals returns what clients refuse, for the upstream of a relay; nil: the upstream is not told.
func (d *daemon) refusals() func() []relay.Refusal {
	if d.cfg.upstream == nil || !d.cfg.passRefusals {
		return nil
	}
	return func() (all []relay.Refusal) {
		for _, r := range d.held.Refused(maxPassedRefusals) {
			all = append(all, relay.Refusal(r))
		}
		return all
	}
}

// refusalsChanged returns what has the upstream of a relay told again; nil: the upstream is not told.
func (d *daemon) refusalsChanged() func() {
	if d.cfg.upstream == nil || !d.cfg.passRefusals {
		return nil
	}
	return func() {
		if up, ok := d.source.(*relaySource); ok { // which is there before the first client
			up.source.Refused()
		}
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
func withholds(q *quarantine.Source) func(*server.Stream, *xds.Type) bool {
	if q == nil {
		return nil
	}
	return func(st *server.Stream, t *xds.Type) bool { return len(q.Of(st, t)) > 0 }
}

// keptBy says, for status, what clients keep instead of what they have refused; nil if nothing is kept.
func keptForStatus(q *quarantine.Source) func(*server.Stream, *xds.Type) []api.Kept {
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
func heldForCSDS(q *quarantine.Source) func(*server.Stream, *xds.Type) []live.Held {
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
func heldForExplain(q *quarantine.Source) func(*server.Stream, *xds.Type) []quarantine.Held {
	if q == nil {
		return nil
	}
	return q.Of
}
