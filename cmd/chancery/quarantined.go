package main

import (
	"context"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/explain"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/repeats"
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
	var lines repeats.Counter
	told := func(h quarantine.Held, stream *server.Stream) {
		place := src().PlaceFor(stream.Node, h.Type, h.Name)
		tell := func(more ...any) {
			s.log.Warn("resource in quarantine: the client refuses it, and gets the others", append([]any{
				"node", shown(stream.Node.ID), "type", h.Type.Short, "resource", shown(h.Name), "at", place, "version", h.Refused, "instead", h.Instead,
			}, more...)...)
		}
		if lines.Say("", h.Type.URL+" "+h.Name+" "+h.Refused, 1, func(n int, _ []string) { tell("repeated", n) }) {
			tell()
		}
		s.admin.tracker.Note(adminapi.Event{
			At: time.Now(), Kind: "quarantine", Node: shown(stream.Node.ID), Stream: stream.ID, Type: h.Type.Short, Version: h.Refused,
			Resources: []adminapi.Resource{{Type: h.Type.Short, Name: h.Name, Place: place}},
		})
	}
	return quarantine.New(&s.identity, guilty, told)
}

// heldBy says, for explain, what is in quarantine; nil if nothing ever is.
func heldBy(q *quarantine.Source) func(*server.Stream, *xds.Type) []explain.Held {
	if q == nil {
		return nil
	}
	return func(st *server.Stream, t *xds.Type) (all []explain.Held) {
		for _, h := range q.Of(st, t) {
			all = append(all, explain.Held{Name: h.Name, Refused: h.Refused, Instead: h.Instead})
		}
		return all
	}
}
