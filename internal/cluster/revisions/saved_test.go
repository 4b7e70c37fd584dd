package revisions_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

// A saved snapshot has the number and the mark of its revision. Watch yields only newer revisions after it.
func TestFromSavedKnowsItsRevision(t *testing.T) {
	engine, err := file.Open(filepath.Join(t.TempDir(), "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	repo := revisions.Open(engine, revisions.Options{})
	var all []*revisions.Snapshot
	var items []*revisions.Item
	s := &revisions.Snapshot{}
	for _, name := range []string{"a", "b", "c"} {
		it := &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, name, []byte(name))}
		items = append(items, it)
		if s, err = repo.Commit(t.Context(), s, revisions.Edit{Set: []*revisions.Item{it}}, revisions.Note{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	kept, err := revisions.FromSaved(items[:2], all[1].Mark())
	if err != nil || kept.Revision.Number != 2 || kept.Mark() != all[1].Mark() || kept.State() != (revisions.State{}) || kept.Len() != 2 {
		t.Fatal(err, kept.Revision.Number, kept.Mark(), kept.State())
	}
	later := revisions.Open(engine, revisions.Options{})
	later.Observe(kept)
	if s, err := later.Head(t.Context()); err != nil || s.Revision.Number != 3 {
		t.Error(err)
	}
	for s, err := range repo.Watch(t.Context(), kept) {
		if err != nil || s.Revision.Number != 3 {
			t.Error(s, err)
		}
		break
	}
	same, err := revisions.FromSaved(items, all[2].Mark())
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range repo.Watch(t.Context(), same) { // a saved snapshot may be incomplete
		if err != nil || s.Revision.Number != 3 || s.State().Number != 3 {
			t.Error(s, err)
		}
		break
	}
	if s, err := revisions.FromSaved(items, ""); err != nil || s.Revision.Number != 0 || s.Mark() != "" {
		t.Error(s, err)
	}
	for _, mark := range []string{"x", "+1", "revision/1", all[0].Mark() + "x", all[0].Mark()[1:], "revision/0000000000000001-00+0", strings.TrimSuffix(all[0].Mark(), "0") + "-1"} {
		if _, err := revisions.FromSaved(items, mark); err == nil {
			t.Errorf("no error for the mark %q", mark)
		}
	}
}
