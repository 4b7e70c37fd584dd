package access_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A late source runs a function while it opens a watch.
type late struct {
	*store.Store
	meanwhile func()
}

func (l late) Watch(ctx context.Context, n *xds.Node) (*store.Watch, error) {
	l.meanwhile()
	return l.Store.Watch(ctx, n)
}

// A policy that is set while a stream opens applies to it: its channel rings.
func TestPolicySetWhileStreamOpens(t *testing.T) {
	st := store.New(store.WithEmptyGroups())
	var src *access.Source[*store.Watch]
	src = access.New(late{st, func() { src.SetPolicy(policy(t, "rules: []")) }}, policy(t, own), access.Options{Identity: identity})
	v, err := src.Watch(called(access.Identity{Kind: access.MTLS, DNS: []string{"a"}}), &xds.Node{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	select {
	case <-v.C():
	default:
		t.Error("nothing rings")
	}
	if _, _, err := v.Next(); err == nil {
		t.Error("the old policy still applies")
	}
}

// A view can be read after its stream has ended. It shows no more than before, and releases its
// lenses.
func TestViewAfterClose(t *testing.T) {
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		for _, name := range []string{"a/x", "b/x"} {
			tx.Set(xds.NewResource(xds.Secret, name, []byte("1")))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	src := access.New(st, policy(t, own), access.Options{Identity: identity})
	v, err := src.Watch(called(access.Identity{Kind: access.MTLS, DNS: []string{"a"}}), &xds.Node{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	view, _, err := v.Next()
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
	var names []string
	for r := range view.Table(xds.Secret).All() {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"a/x"}) {
		t.Errorf("it shows %q", names)
	}
	if n := src.Lenses(); n != 0 {
		t.Errorf("%d lenses and views are left", n)
	}
}

// A countingSource source counts the calls of Ring on its watches.
type countingSource struct {
	*store.Store
	n *atomic.Int32
}

type countingWatch struct {
	*store.Watch
	n *atomic.Int32
}

func (w countingWatch) Ring() { w.n.Add(1); w.Watch.Ring() }

func (r countingSource) Watch(ctx context.Context, n *xds.Node) (countingWatch, error) {
	w, err := r.Store.Watch(ctx, n)
	return countingWatch{w, r.n}, err
}

// A stream that does not call Next after its identity expired rings once a minute, not in a loop.
func TestExpiredViewRingsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		src := access.New(countingSource{store.New(), &n}, policy(t, own), access.Options{Identity: identity})
		v, err := src.Watch(called(access.Identity{Kind: access.MTLS, DNS: []string{"a"}, Expires: time.Now().Add(time.Minute)}), &xds.Node{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 { // in steps, because a timer in a loop would prevent one long sleep
			time.Sleep(time.Second)
			if n.Load() > 20 {
				break
			}
		}
		v.Close()
		if got := n.Load(); got < 10 || got > 20 {
			t.Errorf("the watch rang %d times in 1000 s", got)
		}
	})
}

// A rule for a group also applies to its lanes, if Options.Group maps them.
func TestGroupOptionMapsStates(t *testing.T) {
	st := store.New(store.WithGroups(func(context.Context, *xds.Node) ([]string, error) { return []string{"edge@next"}, nil }))
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Group("edge@next").Set(xds.NewResource(xds.Cluster, "x", []byte("1")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	watch := func(text string) (n int, err error) {
		o := access.Options{Identity: identity, Group: func(g string) string { return strings.TrimSuffix(g, "@next") }}
		v, err := access.New(st, policy(t, text), o).Watch(called(access.Identity{Kind: access.MTLS, DNS: []string{"a"}}), &xds.Node{ID: "a"})
		if err != nil {
			return 0, err
		}
		defer v.Close()
		view, _, err := v.Next()
		if err != nil {
			return 0, err
		}
		for range view.Table(xds.Cluster).All() {
			n++
		}
		return n, nil
	}
	if n, err := watch(`rules: [{identity: {dns: a}, groups: [edge]}]`); n != 1 || err != nil {
		t.Error("an allowing rule for the group does not apply to its lane:", n, err)
	}
	if _, err := watch(`rules: [{identity: {dns: a}}, {deny: true, groups: [edge]}]`); err == nil {
		t.Error("a denying rule for the group does not apply to its lane")
	}
}
