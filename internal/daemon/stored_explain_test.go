package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/xds"
)

// The explanation of a frozen group's resource names the rollout that decides about it. After a rollback or
// an abort, the advice never serves the revision that was taken back.
func TestExplanationOfFrozenResource(t *testing.T) {
	state := func(p rollout.Phase, by, why string) *rollout.State {
		return &rollout.State{
			ID: "r2-1a2b3c", Number: 2, From: map[string]revisions.Number{"edge": 1}, Steps: make([]revisions.Pick, 2),
			Phase: p, By: by, Why: why, Since: time.Now().Add(-time.Minute), Newest: 2,
		}
	}
	const back = "; chancery rollout status r2-1a2b3c shows details"
	moved := state(rollout.RolledBack, "", "old")
	moved.From = map[string]revisions.Number{"edge": 5}
	next := &revisions.Next{Number: 2, Rollout: "r2-1a2b3c", Step: 0}
	for what, tt := range map[string]struct {
		f            frozenResource
		text, advice string
	}{
		"frozen by a person":     {frozenResource{hold: revisions.Hold{Author: "ana", Message: "sale", Time: time.Unix(0, 0)}}, " since 1970-01-01T00:00:00Z by ana: sale", "chancery rollout start r2 --of edge serves it step by step"},
		"no rollout":             {frozenResource{}, "", "chancery rollout start r2 --of edge serves it step by step"},
		"of an earlier freeze":   {frozenResource{rollout: moved}, "", "chancery rollout start r2 --of edge serves it step by step"},
		"done before":            {frozenResource{rollout: state(rollout.Done, "", "")}, "", "chancery rollout start r2 --of edge serves it step by step"},
		"rolled back":            {frozenResource{rollout: state(rollout.RolledBack, "", "node n refuses CDS b at b.yaml:1:1: no")}, ": rollout r2-1a2b3c to r2 was rolled back 1m ago: node n refuses CDS b at b.yaml:1:1: no", "correct the cause, commit the correction (chancery apply), and start a rollout of the new revision" + back},
		"rolled back right now":  {frozenResource{hold: revisions.Hold{Next: next}, in: 2, rollout: state(rollout.RolledBack, "", "no")}, ": rollout r2-1a2b3c to r2 was rolled back 1m ago: no", "correct the cause, commit the correction (chancery apply), and start a rollout of the new revision" + back},
		"aborted":                {frozenResource{rollout: state(rollout.Aborted, "ana", "web is slow")}, ": rollout r2-1a2b3c to r2 was aborted 1m ago by ana: web is slow", "correct the cause, commit the correction (chancery apply), and start a rollout of the new revision" + back},
		"a commit since then":    {frozenResource{newest: 3, rollout: state(rollout.RolledBack, "", "no")}, ": rollout r2-1a2b3c to r2 was rolled back 1m ago: no", "if a later commit corrects the cause: chancery rollout start r3 --of edge" + back},
		"not picked":             {frozenResource{hold: revisions.Hold{Next: next}, in: 2, newest: 3, rollout: state(rollout.Running, "", "")}, ": rollout r2-1a2b3c has not picked this node yet (step 1 of 2)", "chancery rollout status r2-1a2b3c shows the progress of the rollout"},
		"not picked, no record":  {frozenResource{hold: revisions.Hold{Next: next}, in: 2}, ": rollout r2-1a2b3c has not picked this node yet (step 1)", "chancery rollout status r2-1a2b3c shows the progress of the rollout"},
		"later than the rollout": {frozenResource{hold: revisions.Hold{Next: next}, newest: 3, rollout: state(rollout.Running, "", "")}, ", and rollout r2-1a2b3c takes the group to r2 only", "chancery rollout status r2-1a2b3c shows the progress of the rollout"},
	} {
		f := tt.f
		f.group, f.hold.Number, f.newest = "edge", 1, max(f.newest, 2)
		has := "r2"
		if f.newest == 3 && f.in == 0 {
			has = "r3"
		}
		text, advice := f.explain()
		if want := "revision " + has + ` has it, but group "edge" is frozen at r1` + tt.text; strings.TrimSpace(text) != want || advice != tt.advice {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", what, text, advice, want, tt.advice)
		}
	}
}

// SAFE-3: a rollback to a revision whose rollout was rolled back warns with the reason.
func TestKnownRefusalsNameRollout(t *testing.T) {
	next, err := revisions.Of([]*revisions.Item{{Group: "default", Resource: xds.NewResource(xds.Cluster, "a", nil)}})
	if err != nil {
		t.Fatal(err)
	}
	next.Revision.Number = 2
	back := []*rollout.State{{ID: "r3-x", Number: 3, Why: "no"}, {ID: "r2-new", Number: 2, Why: "node n refuses CDS a: no"}, {ID: "r2-old", Number: 2}}
	if all := knownRefusals(next, nil, nil, back); len(all) != 1 || all[0] != "warning: rollout r2-new to this revision was rolled back: node n refuses CDS a: no" {
		t.Errorf("%q", all)
	}
}
