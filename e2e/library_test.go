package e2e

import (
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A library is the server embedded in this process: its store commits in less than a millisecond.
type library struct {
	store *store.Store

	mu       sync.Mutex
	departed []string // names of clusters
	waived   []string // what a deadline ended the wait for
}

// newLibrary serves the world with a tap before it.
func newLibrary(t *testing.T, w world) (*rig, *library) {
	t.Helper()
	lib := &library{store: store.New()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(server.GRPCOptions()...)
	if err := server.New(lib.store, server.WithObserver(lib)).Register(g); err != nil {
		t.Fatal(err)
	}
	go g.Serve(l)
	t.Cleanup(g.Stop)
	r := tapped(t, w, l.Addr().String())
	r.write = func(w world) {
		if err := lib.set(w); err != nil {
			t.Fatal(err)
		}
	}
	r.write(w)
	return r, lib
}

// set replaces all served resources by the world.
func (l *library) set(w world) error {
	_, err := l.store.Update(func(tx *store.Tx) error {
		tx.Clear()
		for _, m := range w {
			typ := xds.TypeOf("type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()))
			r, err := wire.NewResource(typ, "", m)
			if err != nil {
				return err
			}
			tx.Set(r)
		}
		return nil
	})
	return err
}

// Opened implements [server.Observer].
func (l *library) Opened(*server.Stream) {}

// Closed implements [server.Observer].
func (l *library) Closed(*server.Stream, error) {}

// Event implements [server.Observer].
func (l *library) Event(_ *server.Stream, e protocol.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Kind == protocol.Departed && e.Type.Is(xds.Cluster):
		l.departed = append(l.departed, e.Name)
	case e.Kind == protocol.Waived:
		l.waived = append(l.waived, e.Type.Short+" "+e.Name)
	}
}

// gone returns the clusters that were withdrawn, sorted, and what a deadline
// ended the wait for.
func (l *library) gone() (departed, waived []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(l.departed))), slices.Clone(l.waived)
}

// newLibrarySite is newSite with the server in this process.
func newLibrarySite(t *testing.T) (s *site, lib *library) {
	t.Helper()
	s = siteOf(t, func(w world) (r *rig) { r, lib = newLibrary(t, w); return r }, patient)
	return s, lib
}
