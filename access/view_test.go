package access_test

import (
	"context"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/access"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// late is a source with something done while it opens a watch.
type late struct {
	*store.Store
	meanwhile func()
}

func (l late) Watch(ctx context.Context, n *xds.Node) (*store.Watch, error) {
	l.meanwhile()
	return l.Store.Watch(ctx, n)
}

// A policy that is set while a stream opens holds for it, too: its doorbell rings.
func TestPolicyWhileAStreamOpens(t *testing.T) {
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
		t.Error("the old policy is in force")
	}
}

// Who still has what a stream saw may look into it after its end: it shows no more than before,
// and nothing is left behind.
func TestLookAfterTheEnd(t *testing.T) {
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
