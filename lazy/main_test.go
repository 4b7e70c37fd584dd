package lazy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func res(name, body string, aliases ...string) *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Body: []byte(body), Aliases: aliases}
	r.Seal("")
	return r
}

// A backend is the source of the resolver's resources.
type backend struct {
	mu    sync.Mutex
	has   map[string]*xds.Resource // by the name that is asked for
	err   error
	takes time.Duration
	asked []string // so far: "group/name"
	most  int      // at the same time
	now   int
}

func (b *backend) resolve(ctx context.Context, q Query) (*xds.Resource, error) {
	b.mu.Lock()
	b.asked = append(b.asked, q.Group+"/"+q.Name)
	b.now++
	b.most = max(b.most, b.now)
	r, err, takes := b.has[q.Name], b.err, b.takes
	if r != nil && r.Type == nil {
		r.Type = q.Type
	}
	b.mu.Unlock()
	defer func() { b.mu.Lock(); b.now--; b.mu.Unlock() }()
	select {
	case <-time.After(takes):
		return r, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *backend) set(names string, r *xds.Resource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range strings.FieldsSeq(names) {
		b.has[name] = r
	}
}

func (b *backend) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// A bench is a source with its store, backend and log.
type bench struct {
	*testing.T
	*Source
	st  *store.Store
	be  *backend
	log *bytes.Buffer
}

// on runs a test of a running source in a synctest bubble. The backend takes a second.
func on(t *testing.T, name string, f func(b *bench), opts ...Option) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{T: t, be: &backend{has: map[string]*xds.Resource{}, takes: time.Second}, log: &bytes.Buffer{}}
			b.st = store.New(store.WithEmptyGroups(), store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.ID}, nil }))
			opts := append([]Option{WithLogger(slog.New(slog.NewTextHandler(b.log, nil)))}, opts...)
			b.Source = made(b.st, b.be.resolve, []*xds.Type{xds.VirtualHost}, opts...)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); b.Source.Run(ctx) }()
			f(b)
			cancel()
			<-done
		})
	})
}

func (b *bench) update(f func(tx *store.Tx)) {
	b.Helper()
	if _, err := b.st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
		b.Fatal(err)
	}
}

// asked compares the queries to the backend since its last call.
func (b *bench) asked(want ...string) {
	b.Helper()
	b.be.mu.Lock()
	defer b.be.mu.Unlock()
	slices.Sort(b.be.asked)
	if !slices.Equal(b.be.asked, want) {
		b.Errorf("asked for %q, want %q", b.be.asked, want)
	}
	b.be.asked = nil
}

// remembers returns how many names are remembered.
func (b *bench) remembers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

// has compares the resources of the default group and of its underlay in the store.
func (b *bench) has(want string) {
	b.Helper()
	var names []string
	for _, group := range []string{store.DefaultGroup, store.UnderlayOf(store.DefaultGroup)} {
		for r := range b.st.Snapshot().View(group).Table(xds.VirtualHost).All() {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != want {
		b.Errorf("the store has %q, want %q", got, want)
	}
}

// sleep lets time pass and all due work happen.
func (b *bench) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A stream does the work of a server's stream: after a notification it reads its names in the new view,
// and records their states.
type stream struct {
	b    *bench
	w    *Watch
	told map[string]string // by subscribed name
}

func (b *bench) stream(group string) *stream {
	s := &stream{b, watchtest.Open(b.T, b, &xds.Node{ID: group}), map[string]string{}}
	s.w.Next()
	return s
}

func (s *stream) subscribe(names ...string) {
	view := s.next()
	s.w.Interested(xds.VirtualHost, false, names, nil)
	for _, name := range names {
		s.told[name] = "?"
		s.look(view, name)
	}
}

func (s *stream) unsubscribe(names ...string) {
	s.w.Interested(xds.VirtualHost, false, nil, names)
	for _, name := range names {
		delete(s.told, name)
	}
}

func (s *stream) look(view xds.View, name string) {
	table := view.Table(xds.VirtualHost)
	r := table.Lookup(name)
	for found := range table.Aliased(name).All() {
		r = found
	}
	switch {
	case r != nil:
		s.told[name] = string(r.Body)
	case !view.(xds.Undecided).Undecided(xds.VirtualHost, name):
		s.told[name] = "absent"
	}
}

// hear handles a notification.
func (s *stream) hear() {
	synctest.Wait()
	select {
	case <-s.w.C():
	default:
		return
	}
	s.next()
}

// next takes the newest view.
func (s *stream) next() xds.View {
	view, touched := watchtest.Next(s.b.T, s.w)
	for name := range s.told {
		if touched == nil || slices.ContainsFunc(touched, func(n xds.Names) bool { return slices.Contains(n[xds.VirtualHost.URL], name) }) {
			s.look(view, name)
		}
	}
	return view
}

// is compares the recorded states of names: "name=body name=absent".
func (s *stream) is(want string) {
	s.b.Helper()
	s.hear()
	var got []string
	for name, what := range s.told {
		got = append(got, name+"="+what)
	}
	slices.Sort(got)
	if got := strings.Join(got, " "); got != want {
		s.b.Errorf("told %q, want %q", got, want)
	}
}

var errDown = errors.New("the database is down")

// of sets the type of resources that have none.
func of(t *xds.Type, rs ...*xds.Resource) []*xds.Resource {
	for _, r := range rs {
		if r != nil && r.Type == nil {
			r.Type = t
		}
	}
	return rs
}

// made returns the source of New, which must not fail.
func made(st *store.Store, r Resolver, types []*xds.Type, opts ...Option) *Source {
	s, err := New(st, r, types, opts...)
	if err != nil {
		panic(err)
	}
	return s
}
