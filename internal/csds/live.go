package csds

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/status"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker knows the streams of all clients: a [status.Tracker].
type Tracker interface {
	Selected(status.Filter) []*server.Stream
	Client(node string) []adminapi.Client
}

// Live returns the clients of a tracker, for [Options]: in the order of their node ids, and of
// those with one id the last to come last. What one has is asked of its streams.
func Live(t Tracker) func() []Client {
	return func() []Client {
		type key struct{ node, host string }
		streams := map[key][]*server.Stream{}
		var order []key
		for _, st := range t.Selected(status.Filter{All: true}) {
			k := key{st.Node.ID, host(st.Peer)}
			if streams[k] == nil {
				order = append(order, k)
			}
			streams[k] = append(streams[k], st)
		}
		all := make([]Client, 0, len(order))
		for _, k := range order {
			of := streams[k]
			slices.SortFunc(of, func(a, b *server.Stream) int { return cmp.Compare(a.ID, b.ID) })
			all = append(all, Client{
				Node: of[0].Node, Since: of[len(of)-1].Since,
				Config: func(ctx context.Context) ([]TypeConfig, error) { return (&live{t: t, streams: of}).config(ctx) },
			})
		}
		slices.SortStableFunc(all, func(a, b Client) int {
			return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), a.Since.Compare(b.Since))
		})
		return all
	}
}

// host is the address of a peer without its port: the streams of a client may have several.
func host(a net.Addr) string {
	if a == nil {
		return ""
	}
	h, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return h
}

// live asks the streams of one client.
type live struct {
	t       Tracker
	streams []*server.Stream
	status  []adminapi.Client // of its node; nil: not asked for yet
}

// config asks each stream. Of a type that several have it is the newest that counts: an older one
// is about to end.
func (l *live) config(ctx context.Context) ([]TypeConfig, error) {
	var all []TypeConfig
	var last error
	ok := false
	for _, st := range l.streams {
		var some []TypeConfig
		err := st.Inspect(ctx, func(s *protocol.Session) { some = look(s) })
		if err != nil && !errors.Is(err, server.ErrNotBegun) {
			if last = err; ctx.Err() != nil {
				return all, err
			}
			continue
		}
		ok = true
		for _, t := range some {
			l.explain(st, &t)
			all = slices.DeleteFunc(all, func(o TypeConfig) bool { return o.Type.Is(t.Type) })
			all = append(all, t)
		}
	}
	if ok {
		last = nil
	}
	return all, last
}

// look says what a session knows. Its stream waits meanwhile.
func look(s *protocol.Session) (all []TypeConfig) {
	for _, is := range s.States() {
		t := TypeConfig{Type: is.Type, Version: is.Version}
		for n := range s.NameStates(is.Type) {
			if n.State == protocol.StateUnwanted || n.Finds > 0 {
				continue
			}
			t.Resources = append(t.Resources, one(s, is.Type, &n))
		}
		all = append(all, t)
	}
	return all
}

var states = map[protocol.NameStatus]State{
	protocol.StateSynced: Synced, protocol.StateAbsent: Absent, protocol.StateSent: Sent, protocol.StateRefused: Refused,
	protocol.StateWaiting: NotSent, protocol.StateDue: NotSent, protocol.StateLingering: Leaving, protocol.StateUnknown: Unknown,
}

func one(s *protocol.Session, t *xds.Type, n *protocol.NameState) Resource {
	r := Resource{Name: n.Name, State: states[n.State], Has: n.Held != nil}
	if n.View != nil {
		r.Body = s.Resource(t, n.Name)
	}
	if n.Held != nil {
		r.Version = n.Held.Version
	}
	if n.State == protocol.StateSent {
		r.Updated = n.Since
	}
	if n.RefusedIn != "" || r.State == Refused {
		r.Failure = &Failure{}
		if r.State == Refused && n.View != nil {
			r.Failure.Version = n.View.Version
		}
	}
	return r
}

// explain adds what the client said of what it refused.
func (l *live) explain(st *server.Stream, t *TypeConfig) {
	if !slices.ContainsFunc(t.Resources, func(r Resource) bool { return r.Failure != nil }) {
		return
	}
	if l.status == nil {
		l.status = l.t.Client(st.Node.ID)
	}
	for _, c := range l.status {
		for _, is := range c.Types {
			if is.Nacked == nil || is.URL != t.Type.URL || is.Stream != st.ID {
				continue
			}
			for i := range t.Resources {
				if f := t.Resources[i].Failure; f != nil {
					f.At, f.Text = is.Nacked.At, is.Nacked.Error
				}
			}
		}
	}
}
