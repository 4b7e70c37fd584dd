package explain

import (
	"cmp"
	"context"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
)

// Wait sets the state Waiting of types that wait for other resources, and lists these resources. Only
// the streams have this information, so Wait inspects them until ctx ends. It leaves out clients that
// are synced or idle.
func (e *Explainer) Wait(ctx context.Context, clients []api.Client) {
	for i := range clients {
		if c := &clients[i]; c.Left == nil && c.State != api.Synced && c.State != api.Idle && ctx.Err() == nil {
			e.wait(ctx, c)
		}
	}
}

func (e *Explainer) wait(ctx context.Context, c *api.Client) {
	ids := map[uint64]bool{}
	for _, s := range c.Streams {
		ids[s.ID] = true
	}
	for _, st := range e.d.Tracker.Streams(cmp.Or(c.Path, c.Node)) {
		if !ids[st.ID] {
			continue
		}
		_ = st.Inspect(ctx, func(s *protocol.Session) { // if the stream has ended or has not begun, nothing changes
			for _, is := range s.States() {
				if is.Waiting == 0 {
					continue
				}
				for i := range c.Types {
					if u := &c.Types[i]; u.Stream == st.ID && u.URL == is.Type.URL && (u.State == api.Synced || u.State == api.NotSent) {
						u.State, u.WaitsFor = api.Waiting, waitsFor(s, is)
					}
				}
			}
		})
	}
}

// waitsFor returns at most three resources for which the first waiting name of a type waits.
func waitsFor(s *protocol.Session, is protocol.TypeState) (all []api.Resource) {
	for n := range s.NameStates(is.Type) {
		if n.State != protocol.StateWaiting || len(n.WaitsFor) == 0 {
			continue
		}
		for _, ref := range n.WaitsFor[:min(len(n.WaitsFor), 3)] {
			all = append(all, api.Resource{Type: ref.Type.String(), Name: ref.Name})
		}
		return all
	}
	return nil
}
