package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
)

// A scriptedStore is a store whose servers report more about a rollout with each request.
type scriptedStore struct {
	api.Steering
	answers []api.Rollout
}

func (s *scriptedStore) Rollouts(context.Context, string) (*api.RolloutList, error) {
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return &api.RolloutList{Items: s.answers[:1]}, nil
}

// awaitFirstStep waits until the servers have reported the selected clients, and these clients have
// answered.
func TestStartAwaitsAnswersOfFirstStep(t *testing.T) {
	running := func(waits string) api.Rollout {
		return api.Rollout{Phase: string(rollout.Running), Step: 1, WaitsFor: waits}
	}
	asked := running("0 of 1 clients have accepted it: it needs 95 %")
	half := running("")
	half.Waiting = 1
	back := api.Rollout{Phase: string(rollout.RolledBack), Step: 1}
	next := api.Rollout{Phase: string(rollout.Running), Step: 2, WaitsFor: rollout.NotYet}
	for name, c := range map[string]struct {
		answers []api.Rollout
		time    time.Duration
	}{
		"a server without clients answers first": {[]api.Rollout{running(rollout.Nobody), running(rollout.Nobody), asked, running("")}, 300 * time.Millisecond},
		"no client is picked":                    {[]api.Rollout{running(rollout.NoServer), running(rollout.NotYet), running(rollout.Nobody)}, 2 * time.Second},
		"a client refuses":                       {[]api.Rollout{running(rollout.NotYet), asked, back}, 200 * time.Millisecond},
		"the last of several refuses":            {[]api.Rollout{half, back}, 100 * time.Millisecond},
		"the next step has begun":                {[]api.Rollout{running(rollout.Nobody), next}, 100 * time.Millisecond},
		"the rollout is rolled back at once":     {[]api.Rollout{back}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, want := time.Now(), c.answers[len(c.answers)-1]
				got := awaitFirstStep(t.Context(), &scriptedStore{answers: c.answers}, &api.RolloutList{Items: c.answers[:1]}).Items[0]
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
