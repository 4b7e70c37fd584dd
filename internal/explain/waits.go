package explain

import (
	"cmp"
	"context"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/protocol"
)

// Wait notes of clients which of their types wait for others, and for what: only their streams
// know. It asks those that are not well, while the context lasts.
func (e *Explainer) Wait(ctx context.Context, clients []adminapi.Client) {
	for i := range clients {
		if c := &clients[i]; c.Left == nil && c.State != adminapi.Synced && c.State != adminapi.Idle && ctx.Err() == nil {
			e.wait(ctx, c)
		}
	}
}

func (e *Explainer) wait(ctx context.Context, c *adminapi.Client) {
	ids := map[uint64]bool{}
	for _, s := range c.Streams {
		ids[s.ID] = true
	}
	for _, st := range e.d.Tracker.Streams(cmp.Or(c.Path, c.Node)) {
		if !ids[st.ID] {
			continue
		}
		_ = st.Inspect(ctx, func(s *protocol.Session) { // who has left waits for nothing
			for _, is := range s.States() {
				if is.Waiting == 0 {
					continue
				}
				for i := range c.Types {
					if u := &c.Types[i]; u.Stream == st.ID && u.URL == is.Type.URL && (u.State == adminapi.Synced || u.State == adminapi.NotSent) {
						u.State, u.WaitsFor = adminapi.Waiting, waitsFor(s, is)
					}
				}
			}
		})
	}
}

// waitsFor is what the first name waits for of a type of which some do.
func waitsFor(s *protocol.Session, is protocol.TypeState) (all []adminapi.Resource) {
	for n := range s.NameStates(is.Type) {
		if n.State != protocol.StateWaiting || len(n.WaitsFor) == 0 {
			continue
		}
		for _, ref := range n.WaitsFor[:min(len(n.WaitsFor), 3)] {
			all = append(all, adminapi.Resource{Type: ref.Type.String(), Name: ref.Name})
		}
		return all
	}
	return nil
}
