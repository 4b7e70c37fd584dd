package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
)

// A story is a store whose servers say more of a rollout each time they are asked.
type story struct {
	api.Steering
	told []api.Rollout
}

func (s *story) Rollouts(context.Context, string) (*api.RolloutList, error) {
	if len(s.told) > 1 {
		s.told = s.told[1:]
	}
	return &api.RolloutList{Items: s.told[:1]}, nil
}

// What is said of a rollout that begins is what holds when its servers have said whom it picks, and these have answered.
func TestPicking(t *testing.T) {
	running := func(waits string) api.Rollout {
		return api.Rollout{Phase: string(rollout.Running), Step: 1, WaitsFor: waits}
	}
	asked := running("0 of 1 clients have accepted it, and it needs 95 %")
	half := running("")
	half.Waiting = 1
	back := api.Rollout{Phase: string(rollout.RolledBack), Step: 1}
	next := api.Rollout{Phase: string(rollout.Running), Step: 2, WaitsFor: rollout.NotYet}
	for name, c := range map[string]struct {
		told []api.Rollout
		time time.Duration
	}{
		"a server with no client is the first to speak": {[]api.Rollout{running(rollout.Nobody), running(rollout.Nobody), asked, running("")}, 300 * time.Millisecond},
		"nobody is picked":             {[]api.Rollout{running(rollout.NoServer), running(rollout.NotYet), running(rollout.Nobody)}, 2 * time.Second},
		"a client refuses":             {[]api.Rollout{running(rollout.NotYet), asked, back}, 200 * time.Millisecond},
		"the last of several refuses":  {[]api.Rollout{half, back}, 100 * time.Millisecond},
		"the next step has come":       {[]api.Rollout{running(rollout.Nobody), next}, 100 * time.Millisecond},
		"it is taken back before that": {[]api.Rollout{back}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, want := time.Now(), c.told[len(c.told)-1]
				got := picking(t.Context(), &story{told: c.told}, &api.RolloutList{Items: c.told[:1]}).Items[0]
				if got.Phase != want.Phase || got.Step != want.Step || got.WaitsFor != want.WaitsFor {
					t.Errorf("%+v, want %+v", got, want)
				}
				if took := time.Since(began); took != c.time {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}
