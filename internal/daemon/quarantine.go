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

// revisionOf returns the revision of a store that set a version, for status; "": unknown. The groups are separated
// by zero bytes.
func (d *daemon) revisionOf(groups string, t *xds.Type, name string, sum xds.Sum) string {
	if src, ok := d.source.(*storeSource); ok { // the source exists before the first client
		for group := range strings.SplitSeq(groups, "\x00") {
			if n := src.repo.RevisionOf(group, t, name, sum); n > 0 {
				return n.String()
			}
		}
	}
	return ""
}

// newQuarantine returns a source that withholds from each client the resources that this client
// refuses. It calls moved when the refusals have changed; moved may be nil. For revision see [quarantine.Options].
func newQuarantine(of server.Source[server.Watch], sv *services, src func() *dir.Source, moved func(), revision func(string, *xds.Type, string, xds.Sum) string) *quarantine.Source {
	explainer := newExplainer(sv, src)
	findRefused := func(ctx context.Context, stream *server.Stream, t *xds.Type, text string) (b quarantine.Blame) {
		b.Names, b.Named, b.More = explainer().Guilty(ctx, stream, t, text)
		return b
	}
	var lines dedup.Counter
	onHeld := func(h quarantine.Held, stream *server.Stream) {
		place := src().PlaceFor(stream.Node, h.Type, h.Name)
		warn := func(more ...any) {
			sv.log.Warn("resource in quarantine: the client refuses it, and gets the others", append([]any{
				"node", logText(stream.Node.ID), "type", h.Type.String(), "resource", logText(h.Name), "at", place, "version", h.Refused, "instead", h.Instead, "by", h.By.String(),
			}, more...)...)
		}
		if lines.Allow("", h.Type.URL+" "+h.Name+" "+h.Refused, 1, func(n int, _ []string) { warn("repeated", n) }) {
			warn()
		}
		sv.view.tracker.Note(api.Event{
			At: time.Now(), Kind: "quarantine", Node: logText(stream.Node.ID), Stream: stream.ID, Type: h.Type.String(), Version: h.Refused, Text: quarantineText(h),
			Resources: []api.Resource{{Type: h.Type.String(), Name: h.Name, Place: place}},
		})
	}
	scope := func(n *xds.Node) string { return strings.Join(src().Decide(n).Groups, "\x00") }
	return quarantine.New(of, quarantine.Options{
		Moved:  moved,
		Guilty: findRefused, Told: onHeld, Scope: scope, Revision: revision, Log: sv.log,
	})
}

// suspectTimeout limits the search for the faulty resources of a NACK, which delays its stream.
const suspectTimeout = 100 * time.Millisecond

// newSuspects returns a function that finds the faulty resources of a NACK for the log, as status shows them.
func newSuspects(sv *services, src func() *dir.Source) func(*xds.Node, *xds.Type, []string, string) []server.Suspect {
	explainer := newExplainer(sv, src)
	return func(node *xds.Node, t *xds.Type, names []string, text string) (all []server.Suspect) {
		ctx, cancel := context.WithTimeout(context.Background(), suspectTimeout)
		defer cancel()
		for _, r := range explainer().Faulty(ctx, src().Decide(node).Groups, t, text, names) {
			all = append(all, server.Suspect{Name: r.Name, Place: r.Place})
		}
		return all
	}
}

// newExplainer returns a function that returns one explainer. It is made late: the source exists before the
// first client.
func newExplainer(sv *services, src func() *dir.Source) func() *explain.Explainer {
	return sync.OnceValue(func() *explain.Explainer {
		return explain.New(explain.Deps{Tracker: sv.view.tracker, Source: src(), Snapshot: sv.store.Snapshot})
	})
}

// maxPassedRefusals is the maximum number of refused resources that a relay reports to its upstream.
const maxPassedRefusals = 100

// refusals returns a function that lists the refusals of clients for the upstream of a relay. It
// returns nil if the relay does not report refusals.
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

// refusalsChanged returns a function that makes a relay report refusals to its upstream again. It
// returns nil if the relay does not report refusals.
func (d *daemon) refusalsChanged() func() {
	if d.cfg.upstream == nil || !d.cfg.passRefusals {
		return nil
	}
	return func() {
		if up, ok := d.source.(*relaySource); ok { // the source exists before the first client
			up.source.Refused()
		}
	}
}

// quarantineText describes how the refused resource was found, and what the client keeps.
func quarantineText(h quarantine.Held) string {
	if h.Instead == "" {
		return h.By.String() + "; the client gets the others without it"
	}
	if h.Others {
		return h.By.String() + "; the client gets version " + h.Instead + ", which others accepted"
	}
	return h.By.String() + "; the client keeps version " + h.Instead
}

// maxEarlier is the maximum number of earlier versions in status.
const maxEarlier = 100

// earlierForStatus returns a function that lists, for status, the earlier versions that clients get because
// others accepted them.
func earlierForStatus(q *quarantine.Source) func() []api.Earlier {
	return func() (all []api.Earlier) {
		for _, e := range q.Earlier(maxEarlier) {
			all = append(all, api.Earlier{Type: e.Type.Short, Name: logText(e.Name), Refused: e.Refused, Served: e.Instead, RefusedSince: e.RefusedSince, ServedSince: e.InsteadSince, Clients: e.Clients})
		}
		return all
	}
}

// keptForStatus returns a function that lists, for status, what clients keep in place of the resources that
// they refuse. It returns nil without a quarantine.
func keptForStatus(q *quarantine.Source) func(*server.Stream, *xds.Type) []api.Kept {
	if q == nil {
		return nil
	}
	return func(st *server.Stream, t *xds.Type) (all []api.Kept) {
		for _, h := range q.Of(st, t) {
			all = append(all, api.Kept{Name: h.Name, Refused: h.Refused, Kept: h.Instead, Others: h.Others, Why: h.By.String()})
		}
		return all
	}
}

// heldForCSDS returns a function that lists, for CSDS, the resources in quarantine. It returns nil without a
// quarantine.
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

// heldForExplain returns a function that lists, for explain, the resources in quarantine. It returns nil
// without a quarantine.
func heldForExplain(q *quarantine.Source) func(*server.Stream, *xds.Type) []quarantine.Held {
	if q == nil {
		return nil
	}
	return q.Of
}
