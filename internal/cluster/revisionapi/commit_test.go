package revisionapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

// A testStore is a store to commit to.
type testStore struct {
	*testing.T
	Committer
}

func newPlace(t *testing.T) *testStore {
	t.Helper()
	e, err := file.Open(t.TempDir()+"/store", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &testStore{t, Committer{Repo: revisions.Open(e, revisions.Options{})}}
}

// of returns clusters, each given as GROUP/NAME=BODY.
func of(texts ...string) (all []*revisions.Item) {
	for _, text := range texts {
		group, rest, _ := strings.Cut(text, "/")
		name, body, _ := strings.Cut(rest, "=")
		all = append(all, &revisions.Item{Group: group, Resource: xds.NewResource(xds.Cluster, name, []byte(body))})
	}
	return all
}

// commit commits clusters, and returns the result or the error as text.
func (p *testStore) commit(req api.CommitRequest, texts ...string) string {
	p.Helper()
	req.Message = "why"
	c, err := p.Commit(p.Context(), of(texts...), req, "ana")
	return told(c, err)
}

func told(c *api.Commit, err error) string {
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%s after %s: %d set, %d removed", c.Revision, c.Base, c.Set, c.Removed)
	if c.DryRun {
		text = "dry: " + text
	}
	if c.Kept > 0 {
		text += fmt.Sprintf(", %d kept", c.Kept)
	}
	for _, one := range c.Changes {
		text += fmt.Sprintf(", %s %s/%s", one.Change, one.Group, one.Name)
	}
	for _, h := range c.Held {
		text += fmt.Sprintf("; %d of %s at %s", h.Changes, h.Group, h.Revision)
	}
	return text
}

func (p *testStore) is(got, want string) {
	p.Helper()
	if got != want {
		p.Errorf("got %q, want %q", got, want)
	}
}

func (p *testStore) hold(group string, n revisions.Number) {
	p.Helper()
	if err := p.Repo.SetHolds(p.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error {
		holds[group] = revisions.Hold{Number: n}
		return nil
	}); err != nil {
		p.Fatal(err)
	}
}

type request = api.CommitRequest

// A dry run returns what a commit then does: missing items stay, unless they are pruned.
func TestCommit(t *testing.T) {
	p := newPlace(t)
	p.is(p.commit(request{DryRun: true}, "edge/a", "web/a"), "dry: r0 after r0: 2 set, 0 removed, added edge/a, added web/a")
	p.is(p.commit(request{}, "edge/a", "web/a"), "r1 after r0: 2 set, 0 removed")
	p.is(p.commit(request{}, "edge/a"), "r1 after r1: 0 set, 0 removed, 1 kept")
	p.is(p.commit(request{DryRun: true}, "edge/b", "edge/a=2"), "dry: r1 after r1: 2 set, 0 removed, 1 kept, added edge/b, changed edge/a")
	p.is(p.commit(request{}, "edge/b", "edge/a=2"), "r2 after r1: 2 set, 0 removed, 1 kept")
	p.is(p.commit(request{DryRun: true, Prune: true}, "edge/b"), "dry: r2 after r2: 0 set, 2 removed, removed edge/a, removed web/a")
	p.is(p.commit(request{Prune: true}, "edge/b"), "r3 after r2: 0 set, 2 removed")
}

// A commit based on an older revision is a conflict.
func TestIfHead(t *testing.T) {
	p := newPlace(t)
	p.is(p.commit(request{IfHead: "r0"}, "edge/a"), "r1 after r0: 1 set, 0 removed")
	_, err := p.Commit(t.Context(), of("edge/b"), request{IfHead: "r0", DryRun: true}, "ana")
	if c, is := errors.AsType[*revisions.ConflictError](err); !is || c.Base != 0 || c.Head != 1 {
		t.Error(err)
	}
	p.Review = func(*revisions.Snapshot) ([]string, error) {
		p.Review = nil
		p.is(p.commit(request{}, "edge/c"), "r2 after r1: 1 set, 0 removed, 1 kept")
		return nil, nil
	}
	p.is(p.commit(request{IfHead: "r1"}, "edge/b"), "revision r1 is no longer the newest: r2 is")
	if _, err := p.Commit(t.Context(), of("edge/b"), request{IfHead: "x"}, "ana"); err == nil {
		t.Error("no error for the revision x")
	}
}

// The review gets the whole configuration, also in a dry run, and its error prevents the commit. Without
// changes there is no review.
func TestReview(t *testing.T) {
	p := newPlace(t)
	p.is(p.commit(request{}, "edge/a", "edge/b", "web/a"), "r1 after r0: 3 set, 0 removed")
	var seen string
	p.Review = func(next *revisions.Snapshot) ([]string, error) {
		seen = ""
		for it := range next.All {
			seen += fmt.Sprintf("%s/%s=%s ", it.Group, it.Resource.Name, it.Resource.Body)
		}
		if words := strings.Fields(seen); len(words) != next.Len() {
			t.Error(seen)
		}
		return nil, errors.New("it is bad")
	}
	has := func(want ...string) {
		t.Helper()
		for _, one := range want {
			if !strings.Contains(seen, one+" ") {
				t.Errorf("%q has no %s", seen, one)
			}
		}
		if n := len(strings.Fields(seen)); n != len(want) {
			t.Errorf("%q has %d, want %d", seen, n, len(want))
		}
		seen = ""
	}
	for _, dry := range []bool{true, false} {
		p.is(p.commit(request{DryRun: dry}, "edge/a=2", "edge/c="), "it is bad")
		has("edge/a=2", "edge/b=", "edge/c=", "web/a=")
		p.is(p.commit(request{DryRun: dry, Prune: true}, "edge/a=2"), "it is bad")
		has("edge/a=2")
	}
	p.is(p.commit(request{}, "edge/a"), "r1 after r1: 0 set, 0 removed, 2 kept")
	p.Review = nil
	p.is(p.commit(request{Prune: true}, "edge/a=3"), "r2 after r1: 1 set, 2 removed")
	p.Review = func(next *revisions.Snapshot) ([]string, error) {
		if next.Revision.Number != 1 {
			t.Error(next.Revision)
		}
		return nil, errors.New("it is bad, too")
	}
	p.is(told(p.Restore(t.Context(), 1, revisions.Note{})), "it is bad, too")
	p.Review = nil
	p.is(told(p.Restore(t.Context(), 1, revisions.Note{})), "r3 after r2: 3 set, 0 removed")
}

// Changes of a frozen group, which are not served, are reported in a dry run and a commit; those of other
// groups are not.
func TestHeldChanges(t *testing.T) {
	p := newPlace(t)
	p.is(p.commit(request{}, "edge/a", "edge/b", "web/a", "still/a"), "r1 after r0: 4 set, 0 removed")
	p.hold("edge", 1)
	p.hold("still", 1)
	texts := []string{"edge/a=2", "edge/c", "web/a=2", "still/a"}
	p.is(p.commit(request{DryRun: true, Prune: true}, texts...), "dry: r1 after r1: 3 set, 1 removed, changed edge/a, added edge/c, changed web/a, removed edge/b; 3 of edge at r1")
	p.is(p.commit(request{Prune: true}, texts...), "r2 after r1: 3 set, 1 removed; 3 of edge at r1")
	p.is(told(p.Restore(t.Context(), 1, revisions.Note{})), "r3 after r2: 3 set, 1 removed; 3 of edge at r1")
	p.is(told(p.Restore(t.Context(), 1, revisions.Note{})), "r3 after r3: 0 set, 0 removed")
	p.hold("edge", 2)
	p.is(told(p.Restore(t.Context(), 1, revisions.Note{})), "r3 after r3: 0 set, 0 removed; 0 of edge at r2")
}

// Only the directory writer may use a marked source, because it recognizes its own commits by the
// mark.
func TestMark(t *testing.T) {
	const is = "0123456789abcdef"
	for source, want := range map[string]string{
		Mark("", is): is, Mark("abc", is): is, Mark(Mark("", "fedcba9876543210"), is): is,
		"abc": "", "": "", "profiles " + is: "", "files " + is + ", more": "", "files " + is[1:]: "", "files 0" + is: "",
	} {
		if got := MarkIn(source); got != want || (Forged(source) == nil) != (want == "") {
			t.Errorf("%q: %q, %v", source, got, Forged(source))
		}
	}
	p := newPlace(t)
	if got := p.commit(request{Source: "abc, files " + is}, "edge/a"); !strings.Contains(got, "reserved for chancery serve DIR --store") {
		t.Error(got)
	}
	p.is(p.commit(request{Source: "abc"}, "edge/a"), "r1 after r0: 1 set, 0 removed")
}

// The author of a commit for somebody else contains the authenticated program.
func TestClaimed(t *testing.T) {
	for says, want := range map[string]string{"": "token", "ana": "token (says ana)", "ana) certificate of root (says ben": `token (says "ana) certificate of root (says ben")`, `"`: `token (says "\"")`} {
		if got := Claimed("token", says); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
