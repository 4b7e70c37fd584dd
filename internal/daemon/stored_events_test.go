package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/xds"
)

// Each new revision is recorded, in order, and each change of a frozen group. The state at the start is not
// recorded.
func TestAuditorRecordsChanges(t *testing.T) {
	e, err := file.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	repo := revisions.Open(e, revisions.Options{})
	commit := func(message string) {
		t.Helper()
		base, err := repo.Head(t.Context())
		if err == nil {
			it := &revisions.Item{Group: "edge", Resource: xds.NewResource(xds.Cluster, message, nil)}
			_, err = repo.Commit(t.Context(), base, revisions.Edit{Set: []*revisions.Item{it}}, revisions.Note{Author: "ana", Message: message})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	read := func(ctx context.Context, id string) (*rollout.State, error) { return rollout.Read(ctx, e, id) }
	a := &auditor{repo: repo, rollout: read, log: slog.New(slog.DiscardHandler), note: func(e api.Event) {
		got = append(got, e.Version+" "+e.Text+" ["+e.Author+", "+e.Message+"]")
	}}
	tells := func(want ...string) {
		t.Helper()
		got = nil
		if err := a.look(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %q, want %q", err, got, want)
		}
	}
	hold := func(edit func(holds map[string]revisions.Hold)) {
		t.Helper()
		if err := repo.SetHolds(t.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error { edit(holds); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	commit("one")
	tells()
	commit("two")
	commit("three")
	tells("r2 by ana: two [ana, two]", "r3 by ana: three [ana, three]")
	tells()
	hold(func(holds map[string]revisions.Hold) {
		holds["edge"] = revisions.Hold{Number: 2, Author: "ben", Message: "sale"}
	})
	tells("r2 group edge is frozen at r2 by ben: sale [ben, sale]")
	steer := rollout.Steering{Engine: e, Repo: repo}
	ninety := 90.0
	list, err := steer.StartRollout(t.Context(), api.RolloutRequest{Revision: "r3", Steps: []api.RolloutStep{{Percent: 1}}, MinAcked: &ninety, Author: "eve", Message: "try"})
	if err != nil {
		t.Fatal(err)
	}
	id := list.Items[0].ID
	tells("r2 group edge is frozen at r2, rollout " + id + " to r3 at step 1 by eve: try [eve, try]")
	for _, change := range []string{"promote", "abort"} {
		if _, err := steer.ChangeRollout(t.Context(), id, change, api.NoteRequest{Author: "ben"}); err != nil {
			t.Fatal(err)
		}
		text := map[string]string{"promote": ", rollout " + id + " to r3 at step 2 by ben: promote [ben, promote]", "abort": " by ben: abort [ben, abort]"}[change]
		tells("r2 group edge is frozen at r2" + text)
	}
	for by, text := range map[string]string{"": ": rollout ID is done: enough clients have accepted it, for its bake time [, rollout ID is done: enough clients have accepted it, for its bake time]", "ben": " by ben: promote [ben, promote]"} {
		hold(func(holds map[string]revisions.Hold) { holds["edge"] = revisions.Hold{Number: 2} })
		list, err := steer.StartRollout(t.Context(), api.RolloutRequest{Revision: "r3", Steps: []api.RolloutStep{{Percent: 100}}, Author: "eve", Message: "try"})
		if err != nil {
			t.Fatal(err)
		}
		id := list.Items[0].ID
		if err := a.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if by != "" {
			_, err = steer.ChangeRollout(t.Context(), id, "promote", api.NoteRequest{Author: by})
		} else {
			_, err = rollout.Change(t.Context(), e, repo, id, func(s *rollout.State) error { s.Go(time.Now(), ""); return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		tells("r3 group edge is frozen at r3" + strings.ReplaceAll(text, "ID", id))
	}
	hold(func(holds map[string]revisions.Hold) {
		holds["edge"] = revisions.Hold{Number: 2, Author: "ana", Message: "sale"}
	})
	tells("r2 group edge is frozen at r2 by ana: sale [ana, sale]")
	if _, err := steer.Unfreeze(t.Context(), "edge", api.NoteRequest{Author: "ben", Message: "over"}); err != nil {
		t.Fatal(err)
	}
	tells("r3 group edge is no longer frozen by ben: over [ben, over]")
	hold(func(holds map[string]revisions.Hold) { holds["edge"] = revisions.Hold{Number: 2} })
	tells("r2 group edge is frozen at r2 [, ]")
	hold(func(holds map[string]revisions.Hold) { delete(holds, "edge") })
	tells("r3 group edge is no longer frozen [, ]")
	for range maxRevisionEvents + 5 {
		commit(got[0] + "x")
		got[0] += "x"
	}
	if err := a.look(t.Context()); err != nil || len(got) != 1+maxRevisionEvents {
		t.Error(err, len(got))
	}
}
