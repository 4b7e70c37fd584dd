package revsource

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func engine(t *testing.T, dir string) revisions.Engine {
	t.Helper()
	e, err := file.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func route(t *testing.T, group, name, cluster string) *revisions.Item {
	t.Helper()
	b, err := proto.Marshal(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &revisions.Item{Group: group, Resource: xds.NewResource(xds.Route, name, b)}
}

func definition(group, text string) *revisions.Item {
	return &revisions.Item{Group: group, Definition: []byte(text), Place: revisions.Place{File: group + "/group.yaml"}}
}

func seen(st *store.Store, group string) (names []string) {
	view := st.Snapshot().View(group)
	if view == nil {
		return nil
	}
	for r := range view.Table(xds.Route).All() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// Two servers of one repository serve equal versions, with references; a rejected revision leaves the
// earlier one.
func TestServersOfOneRepositoryAgree(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	writer := revisions.Open(engine(t, dir), revisions.Options{})
	type told struct {
		at  revisions.Number
		err error
	}
	var log bytes.Buffer
	var stores []*store.Store
	var sources []*Source
	var news []chan told
	done := make(chan struct{}, 2)
	for i := range 2 {
		st := store.New()
		news = append(news, make(chan told, 10))
		src := New(engine(t, dir), st, Options{Log: slog.New(slog.DiscardHandler), Done: func(n revisions.Number, err error) { news[i] <- told{n, err} }})
		if i == 0 {
			src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		}
		stores, sources = append(stores, st), append(sources, src)
		if _, err := src.Load(ctx); !errors.Is(err, ErrEmpty) || src.Served().Number != 0 {
			t.Fatal(err)
		}
		if st.Snapshot().View(groups.Default) != nil && seen(st, groups.Default) != nil {
			t.Error("an empty repository is served")
		}
		go func() { src.Run(ctx); done <- struct{}{} }()
	}
	defer func() { cancel(); <-done; <-done }()
	base, err := writer.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(items ...*revisions.Item) {
		t.Helper()
		if base, err = writer.Commit(ctx, base, base.To(items), revisions.Note{Author: "ci", Message: "why"}); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(want revisions.Number, say string) {
		t.Helper()
		for _, n := range news {
			select {
			case got := <-n:
				if got.at != want || (got.err == nil) != (say == "") || got.err != nil && !strings.Contains(got.err.Error(), say) {
					t.Fatalf("%+v, want %s %q", got, want, say)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("heard nothing")
			}
		}
	}
	serves := func(group string, want ...string) {
		t.Helper()
		for _, st := range stores {
			if got := seen(st, group); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", group, got, want)
			}
		}
		if a, b := stores[0].Snapshot().View(group), stores[1].Snapshot().View(group); a != nil && a.Table(xds.Route).Version() != b.Table(xds.Route).Version() {
			t.Error("two servers have different versions")
		}
	}
	edge := definition("edge", "match: {cluster: edge}\ninclude: [default]\n")
	commit(route(t, "default", "a", "one"), edge, route(t, "edge", "b", "two"))
	hears(1, "")
	serves("default", "a")
	serves("edge", "b")
	r := stores[0].Snapshot().View("default").Table(xds.Route).Lookup("a")
	if len(r.Refs) != 1 || r.Refs[0].Name != "one" {
		t.Errorf("%v", r.Refs)
	}
	// A resource moves to another group.
	commit(edge, route(t, "edge", "a", "one"), route(t, "edge", "b", "two"), &revisions.Item{Group: "edge", Type: xds.Route.URL, Version: "v7"})
	hears(2, "")
	serves("default")
	serves("edge", "a", "b")
	if v := stores[0].Snapshot().View("edge").Table(xds.Route).Version(); v != "v7" {
		t.Error(v)
	}
	// The group has no definition: the earlier revision stays, and the next one is compared with that.
	commit(edge, route(t, "edge", "a", "one"), route(t, "web", "c", "one"))
	hears(2, `group "web" has no definition`)
	serves("edge", "a", "b")
	commit(definition("edge", "mtach: {}\n"), route(t, "edge", "a", "one"))
	hears(2, "edge/group.yaml")
	serves("edge", "a", "b")
	commit(edge, route(t, "edge", "a", "one"))
	hears(5, "")
	serves("edge", "a")
	if v := stores[0].Snapshot().View("edge").Table(xds.Route).Version(); v == "v7" {
		t.Error(v)
	}
	if served := sources[0].Served(); served.Number != 5 || served.Message != "why" {
		t.Errorf("%+v", served)
	}
	cancel()
}

// Resources that a review or a restore has decoded are not decoded again; the others are decoded here.
func TestResourceOfReview(t *testing.T) {
	dir, st := t.TempDir(), store.New()
	writer := revisions.Open(engine(t, dir), revisions.Options{})
	commit := func(items ...*revisions.Item) {
		t.Helper()
		base, err := writer.Head(t.Context())
		if err == nil {
			_, err = writer.Commit(t.Context(), base, base.To(items), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]*xds.Resource{}
	knows := func(it *revisions.Item) *xds.Resource {
		r := it.Resource.Copy()
		r.Refs = []xds.Ref{{Type: xds.Cluster, Name: "reviewed"}}
		known[r.Name] = r
		return r
	}
	var items []*revisions.Item
	src := New(engine(t, dir), st, Options{Log: slog.New(slog.DiscardHandler),
		Review: func(next *revisions.Snapshot) error {
			for it := range next.All {
				items = append(items, it)
				if it.Resource.Refs != nil {
					t.Errorf("%s was read before the review", it.Resource.Name)
				}
				if known[it.Resource.Name] == nil && it.Resource.Name != "strange" {
					knows(it)
				}
			}
			return nil
		},
		Resource: func(it *revisions.Item) *xds.Resource { return known[it.Resource.Name] },
	})
	is := func(name, ref string) {
		t.Helper()
		r := st.Snapshot().View("default").Table(xds.Route).Lookup(name)
		if r == nil || len(r.Refs) != 1 || r.Refs[0].Name != ref || known[name] != nil && known[name] != r {
			t.Errorf("%s: %+v", name, r)
		}
	}
	kept := []*revisions.Item{route(t, "default", "kept", "x")}
	knows(kept[0])
	if err := src.Restore(kept, ""); err != nil {
		t.Fatal(err)
	}
	is("kept", "reviewed")
	commit(route(t, "default", "kept", "x"), route(t, "default", "a", "x"), route(t, "default", "strange", "one"))
	if _, err := src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("kept", "reviewed")
	is("a", "reviewed")
	is("strange", "one")
	for _, it := range items {
		if it.Resource.Refs != nil {
			t.Errorf("the source changed the resource %s of the repository", it.Resource.Name)
		}
	}
}
