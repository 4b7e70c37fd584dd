// Package live collects the clients of a server for CSDS, from the tracker and the streams. It is a
// package of its own, so that client/csds does not import the server.
package live

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Tracker lists the streams of all clients. The implementation is [clients.Tracker].
type Tracker interface {
	Selected(clients.Filter) []*server.Stream
	Client(node string) []api.Client
}

// A Held is a resource whose newest version is held back: the resource is in quarantine, or refers to
// one in quarantine. The session serves another version instead.
type Held struct {
	Name    string
	Version string        // the version that is held back
	Body    *xds.Resource // the held back version; nil: unknown
	Waits   bool          // the resource itself is not refused, but refers to a refused resource
}

// Clients returns a function for [csds.Options] that lists the clients of a tracker by node ID. Of
// several clients with the same ID, the newest comes last. The resources are read from the streams.
// The function held returns the held resources of a type; the stream's goroutine calls it. If it is
// nil, no resource is held.
func Clients(t Tracker, held func(*server.Stream, *xds.Type) []Held) func() []csds.Client {
	return func() []csds.Client {
		type key struct {
			node, host string
			stream     uint64 // identifies a client without a node ID
		}
		streams := map[key][]*server.Stream{}
		var order []key
		for _, st := range t.Selected(clients.Filter{All: true}) {
			k := key{node: st.Node.ID, host: host(st.Peer)}
			if k.node == "" {
				k.stream = st.ID
			}
			if streams[k] == nil {
				order = append(order, k)
			}
			streams[k] = append(streams[k], st)
		}
		hosts := map[string]int{} // by node ID
		for _, k := range order {
			hosts[k.node]++
		}
		all := make([]csds.Client, 0, len(order))
		for _, k := range order {
			of := streams[k]
			slices.SortFunc(of, func(a, b *server.Stream) int { return cmp.Compare(a.ID, b.ID) })
			all = append(all, csds.Client{
				Node: of[0].Node, Since: of[len(of)-1].Since, Scope: scope(k.node, k.host, k.stream, hosts[k.node]),
				Config: func(ctx context.Context) ([]csds.TypeConfig, error) {
					return (&clientStreams{t: t, held: held, streams: of}).config(ctx)
				},
			})
		}
		slices.SortStableFunc(all, func(a, b csds.Client) int {
			return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), a.Since.Compare(b.Since))
		})
		return all
	}
}

// scope returns the client_scope of a client, which is unique in an answer: its node ID, with the address if the
// node ID has several clients. A client without a node ID has the name that the admin API gives it.
func scope(node, host string, stream uint64, same int) string {
	switch {
	case node == "":
		return clients.PathOf(stream)
	case same > 1 && host != "":
		return node + "@" + host
	}
	return node
}

// host returns the address of a peer without the port, because each stream of a client may have
// another port.
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

// clientStreams reads the streams of one client.
type clientStreams struct {
	t       Tracker
	held    func(*server.Stream, *xds.Type) []Held
	streams []*server.Stream
	status  []api.Client // the tracker's clients with the node's ID; nil: not read yet
}

// config reads each stream. If several streams have the same type, it uses the newest, because the older
// streams are about to end.
func (l *clientStreams) config(ctx context.Context) ([]csds.TypeConfig, error) {
	var all []csds.TypeConfig
	var last error
	ok := false
	for _, st := range l.streams {
		var some []csds.TypeConfig
		err := st.Inspect(ctx, func(s *protocol.Session) { some = l.read(st, s) })
		if err != nil && !errors.Is(err, server.ErrNotBegun) {
			last = err
			if ctx.Err() != nil {
				return all, err
			}
			continue
		}
		ok = true
		for _, t := range some {
			l.addErrors(st, &t)
			all = slices.DeleteFunc(all, func(o csds.TypeConfig) bool { return o.Type.Is(t.Type) })
			all = append(all, t)
		}
	}
	if ok {
		last = nil
	}
	return all, last
}

// read returns the resources of a session. The stream's goroutine runs it, and sends nothing in the
// meantime.
func (l *clientStreams) read(st *server.Stream, s *protocol.Session) (all []csds.TypeConfig) {
	for _, is := range s.States() {
		t := csds.TypeConfig{Type: is.Type, Version: is.Version}
		for n := range s.NameStates(is.Type) {
			if n.State == protocol.StateUnwanted || n.Finds > 0 {
				continue
			}
			t.Resources = append(t.Resources, one(s, is.Type, &n))
		}
		if l.held != nil {
			for _, h := range l.held(st, is.Type) {
				h.into(&t)
			}
		}
		all = append(all, t)
	}
	return all
}

var states = map[protocol.NameStatus]csds.State{
	protocol.StateSynced: csds.Synced, protocol.StateAbsent: csds.Absent, protocol.StateSent: csds.Sent, protocol.StateRefused: csds.Refused,
	protocol.StateWaiting: csds.NotSent, protocol.StateDue: csds.NotSent, protocol.StateLingering: csds.Leaving, protocol.StateUnknown: csds.Unknown,
}

func one(s *protocol.Session, t *xds.Type, n *protocol.NameState) csds.Resource {
	r := csds.Resource{Name: n.Name, State: states[n.State], Has: n.Held != nil}
	if n.View != nil {
		r.Body = s.Resource(t, n.Name)
	}
	if n.Held != nil {
		r.Version = n.Held.Version
	}
	if n.State == protocol.StateSent {
		r.Updated = n.Since
	}
	if n.RefusedIn != "" || r.State == csds.Refused {
		r.Failure = &csds.Failure{}
		if r.State == csds.Refused && n.View != nil {
			r.Failure.Version = n.View.Version
		}
	}
	return r
}

// into sets the state of a held resource in t, because the session does not know that the resource is
// held.
func (h *Held) into(t *csds.TypeConfig) {
	i := slices.IndexFunc(t.Resources, func(r csds.Resource) bool { return r.Name == h.Name })
	if i < 0 {
		i = len(t.Resources)
		t.Resources = append(t.Resources, csds.Resource{Name: h.Name})
	}
	r := &t.Resources[i]
	r.Updated = time.Time{}
	if h.Waits {
		r.State, r.Body = csds.NotSent, h.Body
		return
	}
	r.State, r.Failure = csds.Refused, &csds.Failure{Version: h.Version, Body: h.Body}
}

// addErrors adds the time and text of the client's NACK to refused resources.
func (l *clientStreams) addErrors(st *server.Stream, t *csds.TypeConfig) {
	if !slices.ContainsFunc(t.Resources, func(r csds.Resource) bool { return r.Failure != nil }) {
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
