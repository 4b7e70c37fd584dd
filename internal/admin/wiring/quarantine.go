package wiring

import (
	"context"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/csds/live"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// quarantine returns a source that withholds from each client the resources that this client refuses.
func (p *Parts) quarantine() *quarantine.Source {
	findRefused := func(ctx context.Context, stream *server.Stream, t *xds.Type, text string) (b quarantine.Blame) {
		b.Names, b.Named, b.More = p.Explainer().Guilty(ctx, stream, t, text)
		return b
	}
	var lines dedup.Counter
	onHeld := func(h quarantine.Held, stream *server.Stream) {
		place := p.o.Place(stream.Node, h.Type, h.Name)
		warn := func(more ...any) {
			p.o.Log.Warn("resource in quarantine: the client refuses it, and gets the others", append([]any{
				"node", logText(stream.Node.ID), "type", h.Type.String(), "resource", logText(h.Name), "at", place, "version", h.Refused, "instead", h.Instead, "by", h.By.String(),
			}, more...)...)
		}
		if lines.Allow("", h.Type.URL+" "+h.Name+" "+h.Refused, 1, func(n int, _ []string) { warn("repeated", n) }) {
			warn()
		}
		p.Tracker.Note(api.Event{
			At: time.Now(), Kind: "quarantine", Node: logText(stream.Node.ID), Stream: stream.ID, Type: h.Type.String(), Version: h.Refused, Text: quarantineText(h),
			Resources: []api.Resource{{Type: h.Type.String(), Name: h.Name, Place: place}},
		})
	}
	scope := func(n *xds.Node) string { return strings.Join(p.groups(n), "\x00") }
	return quarantine.New(p.o.Withholds, quarantine.Options{
		Moved:  p.o.Moved,
		Guilty: findRefused, Told: onHeld, Scope: scope, Revision: p.o.Revision, Log: p.o.Log,
	})
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

// Earlier lists, for status, the earlier versions that clients get because others accepted them.
func (p *Parts) Earlier() (all []api.Earlier) {
	if p.Held == nil {
		return nil
	}
	for _, e := range p.Held.Earlier(maxEarlier) {
		all = append(all, api.Earlier{Type: e.Type.Short, Name: logText(e.Name), Refused: e.Refused, Served: e.Instead, RefusedSince: e.RefusedSince, ServedSince: e.InsteadSince, Clients: e.Clients})
	}
	return all
}

// kept lists, for status, what a client keeps in place of the resources that it refuses.
func (p *Parts) kept(st *server.Stream, t *xds.Type) (all []api.Kept) {
	for _, h := range p.Held.Of(st, t) {
		all = append(all, api.Kept{Name: h.Name, Refused: h.Refused, Kept: h.Instead, Others: h.Others, Why: h.By.String()})
	}
	return all
}

// heldForCSDS lists, for CSDS, the resources in quarantine.
func (p *Parts) heldForCSDS(st *server.Stream, t *xds.Type) (all []live.Held) {
	for _, h := range p.Held.Of(st, t) {
		all = append(all, live.Held{Name: h.Name, Version: h.Refused, Body: h.Body, Waits: h.By == quarantine.Dependent})
	}
	return all
}
