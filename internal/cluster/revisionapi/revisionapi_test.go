package revisionapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

func numbers(h *api.History, err error) string {
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, r := range h.Items {
		text += r.Revision
		for _, hold := range r.Holds {
			text += "(" + hold.Group + ")"
		}
		text += " "
	}
	return strings.TrimSpace(text)
}

// The history contains the kept revisions, or those that changed one resource in any group, with their
// holds. The changes of the oldest kept revision are unknown.
func TestHistory(t *testing.T) {
	p := newPlace(t)
	ctx := t.Context()
	url := xds.Cluster.URL
	p.is(numbers(History(ctx, p.Repo, "", "", 0)), "")
	if _, err := At(ctx, p.Repo, 0); !errors.Is(err, revisions.ErrNotFound) {
		t.Error(err)
	}
	for _, texts := range [][]string{{"edge/a", "edge/b"}, {"edge/b", "web/b"}, {"edge/b=2", "web/b"}, {"web/b"}} {
		p.commit(request{Prune: true}, texts...)
	}
	p.hold("edge", 3)
	p.is(numbers(History(ctx, p.Repo, "", "", 0)), "r4 r3(edge) r2 r1")
	p.is(numbers(History(ctx, p.Repo, "", "", 3)), "r4 r3(edge) r2")
	p.is(numbers(History(ctx, p.Repo, url, "b", 0)), "r4 r3(edge) r2 r1")
	p.is(numbers(History(ctx, p.Repo, url, "b", 2)), "r4 r3(edge)")
	p.is(numbers(History(ctx, p.Repo, url, "a", 0)), "r2 r1")
	p.is(numbers(History(ctx, p.Repo, xds.Listener.URL, "a", 0)), "")
	for want, n := range map[revisions.Number]revisions.Number{4: 0, 2: 2} {
		if s, err := At(ctx, p.Repo, n); err != nil || s.Revision.Number != want {
			t.Error(s, err)
		}
	}
	if _, err := p.Repo.Sweep(ctx, 2); err != nil {
		t.Fatal(err)
	}
	p.is(numbers(History(ctx, p.Repo, "", "", 0)), "r4 r3(edge)")
	p.is(numbers(History(ctx, p.Repo, url, "b", 0)), "r4")
	restored, err := p.Restore(ctx, 3, revisions.Note{Author: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := History(ctx, p.Repo, "", "", 1)
	if err != nil || h.Items[0].Revision != restored.Revision || h.Items[0].Restores != "r3" || h.Items[0].Author != "ana" {
		t.Errorf("%+v, %v", h, err)
	}
}

// The changes of a revision are those since the revision before it, with the sizes of the resources. They are unknown
// if the store no longer has that revision.
func TestChanges(t *testing.T) {
	p := newPlace(t)
	ctx := t.Context()
	for _, texts := range [][]string{{"edge/a=1", "edge/b=1", "web/c=1"}, {"edge/b=22", "web/b=1", "web/c=1"}, {"web/c=1"}} {
		p.commit(request{Prune: true}, texts...)
	}
	is := func(n revisions.Number, want string) {
		t.Helper()
		c, plan, err := Changes(ctx, p.Repo, n)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Revision.Revision + " since " + c.Base + ": " + c.Unknown
		for i, one := range c.Items {
			got += fmt.Sprintf("%s %s %s %s %d %d; ", one.Change, one.Group, one.Type, one.Name, one.Before, one.Bytes)
			if plan[i].Type != xds.Cluster.URL || plan[i].Name != one.Name || plan[i].Group != one.Group || plan[i].Bytes != one.Bytes {
				t.Errorf("%+v, %+v", one, plan[i])
			}
		}
		for _, h := range c.Held {
			got += fmt.Sprintf("%d of %s at %s", h.Changes, h.Group, h.Revision)
		}
		p.is(got, want)
	}
	is(1, "r1 since : added edge CDS a 0 1; added edge CDS b 0 1; added web CDS c 0 1; ")
	is(2, "r2 since r1: removed edge CDS a 1 0; changed edge CDS b 1 2; added web CDS b 0 1; ")
	is(0, "r3 since r2: removed edge CDS b 2 0; removed web CDS b 1 0; ")
	p.hold("edge", 2)
	is(3, "r3 since r2: removed edge CDS b 2 0; removed web CDS b 1 0; 1 of edge at r2")
	is(2, "r2 since r1: removed edge CDS a 1 0; changed edge CDS b 1 2; added web CDS b 0 1; ")
	p.hold("edge", 3)
	if _, err := p.Repo.Sweep(ctx, 1); err != nil {
		t.Fatal(err)
	}
	is(3, "r3 since r2: the store no longer has r2")
	if _, _, err := Changes(ctx, p.Repo, 9); !errors.Is(err, revisions.ErrNotFound) {
		t.Error(err)
	}
}

// Blame returns the revision that set a resource last, for each group, and the file. Of a removed
// revision it returns only the number.
func TestBlame(t *testing.T) {
	p := newPlace(t)
	ctx := t.Context()
	commit := func(author, file string, texts ...string) {
		t.Helper()
		items := append(of(texts...), &revisions.Item{Group: "edge", Resource: xds.NewResource(xds.Listener, "a", nil)})
		for _, it := range items {
			it.Place = revisions.Place{File: file, Line: 3, Col: 1}
		}
		if _, err := p.Commit(ctx, items, request{Message: "why " + author, Prune: true}, author); err != nil {
			t.Fatal(err)
		}
	}
	commit("ana", "a.yaml", "web/a", "edge/a", "edge/b")
	commit("ben", "b.yaml", "web/a", "edge/a=2", "edge/b")
	is := func(want string) {
		t.Helper()
		b, err := Blame(ctx, p.Repo, xds.Cluster.URL, "a")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, one := range b.Items {
			got += strings.Join([]string{one.Group, one.Revision, one.Author, one.Message, one.Place}, " ") + "; "
		}
		p.is(got, want)
	}
	is("edge r2 ben why ben b.yaml:3:1; web r1 ana why ana a.yaml:3:1; ")
	if _, err := p.Repo.Sweep(ctx, 1); err != nil {
		t.Fatal(err)
	}
	is("edge r2 ben why ben b.yaml:3:1; web r1   a.yaml:3:1; ")
}

// An item survives the round trip over the API.
func TestItem(t *testing.T) {
	full := &xds.Resource{Stamp: &xds.Stamp{Name: "a"}, Type: xds.Cluster, Body: []byte("x"), Aliases: []string{"b"}, TTL: 30 * time.Second, OnDemand: true}
	full.Seal("v7")
	for name, it := range map[string]*revisions.Item{
		"resource":   {Group: "edge", Resource: full, Secret: true, Place: revisions.Place{File: "a.yaml", Line: 3, Col: 1, Path: "p"}},
		"plain":      {Group: "edge", Resource: xds.NewResource(xds.Cluster, "a", nil)},
		"version":    {Group: "edge", Type: xds.Cluster.URL, Version: "v7"},
		"definition": {Group: "edge", Definition: []byte("match: {}")},
	} {
		got, err := Item(Line(it))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if edit := (must(t, it)).To([]*revisions.Item{got}); len(edit.Set)+len(edit.Remove) != 0 || got.Place != it.Place {
			t.Errorf("%s: %+v, want %+v", name, got, it)
		}
		if r := got.Resource; r != nil && (r.TTL != it.Resource.TTL || len(r.Aliases) != len(it.Resource.Aliases)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	url := xds.Cluster.URL
	for want, l := range map[string]api.RevisionItem{
		"group is missing":              {Type: url, Name: "a"},
		"neither a body":                {Group: "g", Type: url, Version: "1", Body: []byte("x")},
		"neither a body nor a":          {Group: "g", Type: url, Version: "1", Definition: "x"},
		"type is missing":               {Group: "g", Name: "a"},
		"type is miss":                  {Group: "g", Body: []byte("x")},
		"is not a type URL":             {Group: "g", Type: "envoy.config.cluster.v3.Cluster", Name: "a"},
		"a resource has no":             {Group: "g", Type: url, Name: "a", Definition: "x"},
		`ttl: "x" is not a duration`:    {Group: "g", Type: url, Name: "a", TTL: "x"},
		`ttl: "-30s" is not a duration`: {Group: "g", Type: url, Name: "a", TTL: "-30s"},
		`"*" is reserved`:               {Group: "g", Type: url, Name: "*"},
	} {
		if it, err := Item(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %s", it, err, want)
		}
	}
}

// must returns a snapshot of an item.
func must(t *testing.T, it *revisions.Item) *revisions.Snapshot {
	t.Helper()
	s, err := revisions.Of([]*revisions.Item{it})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// SAFE-6: only the visible part of an item is shown, and a hidden part is marked.
func TestSAFE6Shown(t *testing.T) {
	show := func(url string, body []byte) ([]byte, bool) { return []byte("shown"), url != xds.Secret.URL }
	for _, typ := range []*xds.Type{xds.Cluster, xds.Secret} {
		l := Shown(&revisions.Item{Group: "g", Resource: xds.NewResource(typ, "a", []byte("secret"))}, show)
		if string(l.Body) != "shown" || l.Redacted != (typ == xds.Secret) {
			t.Errorf("%+v", l)
		}
	}
	if l := Shown(&revisions.Item{Group: "g", Definition: []byte("match: {}")}, show); l.Definition != "match: {}" || l.Redacted {
		t.Errorf("%+v", l)
	}
}

// Place describes the known part of an item's place.
func TestPlace(t *testing.T) {
	for want, l := range map[string]api.RevisionItem{
		`a.yaml:3:1: CDS "a" in group "g"`: {File: "a.yaml", Line: 3, Col: 1, Path: "p"},
		`a.pb (p): CDS "a" in group "g"`:   {File: "a.pb", Path: "p"},
		`a.pb: CDS "a" in group "g"`:       {File: "a.pb"},
		`CDS "a" in group "g"`:             {Line: 3},
	} {
		l.Group, l.Type, l.Name = "g", xds.Cluster.URL, "a"
		if got := Place(l); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
