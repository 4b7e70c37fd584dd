package admin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
)

// steering returns a server of a store with r1 and r2, which records the reported changes.
func steering(t *testing.T) (*Server, *[]string) {
	t.Helper()
	s := committing(t)
	e, err := file.Open(t.TempDir()+"/store", nil)
	if err != nil {
		t.Fatal(err)
	}
	repo := revisions.Open(e, revisions.Options{})
	told := &[]string{}
	s.Revisions.Repo, s.Revisions.Steering = repo, rollout.Steering{Engine: e, Repo: repo}
	s.Revisions.Done = func(what, author, message string) { *told = append(*told, what+" by "+author+": "+message) }
	s.Revisions.Refused = func(what, author, _ string, err error) {
		*told = append(*told, "refused "+what+" by "+author+": "+err.Error())
	}
	h := s.Handler(loopback)
	withToken(t, h, question{"POST /api/v1/revisions", commitOf("", "a"), 200, `"revision":"r1"`})
	withToken(t, h, question{"POST /api/v1/revisions", commitOf("", "b"), 200, `"revision":"r2"`})
	return s, told
}

// A proven caller freezes and unfreezes a group. The hold has the caller's identity and the author that
// the caller stated.
func TestFreeze(t *testing.T) {
	s, told := steering(t)
	h := s.Handler(loopback)
	for _, q := range []question{
		{"POST /api/v1/groups/default/unfreeze", "", 404, "group default is not frozen"},
		{"POST /api/v1/groups/default/freeze", `{"message":"sale"}`, 200, `"kind":"Freeze","group":"default","revision":"r2"}`},
		{"POST /api/v1/groups/default/freeze", `{"message":"sale","author":"ana","revision":"r1"}`, 200, `"revision":"r1","was":"r2","before":{"group":"default","revision":"r2","author":"token","message":"sale","at":"`},
		{"POST /api/v1/groups/default/freeze", `{"message":"other"}`, 409, `group default is frozen already, at r1 since 20`},
		{"POST /api/v1/groups/default/freeze", `{"message":"sale","author":"ana","revision":"head"}`, 200, `"revision":"r2","was":"r1","before":`},
		{"POST /api/v1/groups/default/freeze", `{"message":"sale","author":"ana","revision":"r1"}`, 200, `"revision":"r1","was":"r2"`},
		{"GET /api/v1/revisions/r1", "", 200, `"r1"`},
		{"GET /api/v1/revisions", "", 200, `"holds":[{"group":"default","revision":"r1","author":"token (says ana)","message":"sale"`},
		{"POST /api/v1/groups/default/freeze", `{}`, 400, `"field":"message"`},
		{"POST /api/v1/groups/default/freeze", `{"message":"` + strings.Repeat("x", 501) + `"}`, 400, `"field":"message","message":"it has 501 bytes: at most 500`},
		{"POST /api/v1/groups/default/freeze", `{"message":"x","author":"` + strings.Repeat("x", 490) + `"}`, 400, `"field":"author","message":"with the authenticated caller it has 503 bytes (token (says x`},
		{"POST /api/v1/groups/default/freeze", `{"message":" \n"}`, 400, `"field":"message"`},
		{"POST /api/v1/groups/default/freeze", `{"message":"two\nlines"}`, 400, `"field":"message","message":"each text of the note has one line"`},
		{"POST /api/v1/groups/default/freeze", `{"message":"x","revision":"r0"}`, 400, `"field":"revision","message":"\"r0\" is not a revision number: the first is r1"`},
		{"POST /api/v1/groups/default/freeze", `{"message":"x","revision":"rx"}`, 400, `is not a revision`},
		{"POST /api/v1/groups/default/freeze", `{"message":"x","at":"r1"}`, 400, `unknown field`},
		{"POST /api/v1/groups/default/freeze", `{"message":"x","revision":"r9"}`, 404, `the newest is r2`},
		{"POST /api/v1/groups/web%2F1/freeze", `{"message":"x"}`, 404, `r2 has no group \"web/1\"","hint":"the groups are default"`},
		{"POST /api/v1/groups/default/unfreeze", `{"author":"ben"}`, 200, `"revision":"r2","was":"r1","before":`},
		{"GET /api/v1/groups/default/unfreeze", "", 405, "POST"},
	} {
		withToken(t, h, q)
	}
	if freed, err := s.Revisions.Repo.Released(t.Context()); err != nil || freed["default"].Author != "token (says ben)" || freed["default"].Number != 1 {
		t.Error(freed, err)
	}
	if !slices.Contains(*told, `refused freeze of group web/1 by token: r2 has no group "web/1"`) {
		t.Error(*told)
	}
}

// A rollout is started, changed and ended over the API. An unknown ID gets a list of the existing ones.
func TestRollouts(t *testing.T) {
	s, told := steering(t)
	h := s.Handler(loopback)
	const start = `{"message":"why","author":"ana","revision":"r2","min_acked":50,"bake":"90s","steps":[{"labels":{"canary":"true"}},{"percent":1.5}]}`
	for _, q := range []question{
		{"GET /api/v1/rollouts", "", 200, `"kind":"RolloutList","items":[]}`},
		{"POST /api/v1/rollouts", start, 422, `no frozen group differs in r2: there is nothing to roll out","hint":"no group is frozen`},
		{"POST /api/v1/groups/default/freeze", `{"message":"x","revision":"r1"}`, 200, ""},
		{"POST /api/v1/rollouts", `{"revision":"r2","steps":[{"percent":1}]}`, 400, `"field":"message"`},
		{"POST /api/v1/rollouts", `{"message":"x","steps":[{"percent":1}]}`, 400, `"field":"revision","message":"is missing`},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r2"}`, 400, "name the first nodes"},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r2","steps":[{}]}`, 400, `"field":"steps","message":"a step picks no node`},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r2","steps":[{"labels":{"a":"b"}},{"labels":{"c":"d"}}]}`, 400, "labels in two steps"},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r2","steps":[{"percent":1}],"bake":"soon"}`, 400, `"field":"bake","message":"want a duration such as 5m`},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r2","steps":[{"percent":1}],"of":["none"]}`, 404, `group \"none\" is neither in r2 nor in the served configuration","hint":"the groups are default"`},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r2","steps":[{"groups":["none"]}]}`, 404, `group \"none\" is neither in r2`},
		{"POST /api/v1/rollouts", `{"message":"x","revision":"r9","steps":[{"percent":1}]}`, 404, "the newest is r2"},
		{"POST /api/v1/rollouts", start, 200, `"revision":"r2","from":{"default":"r1"},"steps":[{"labels":{"canary":"true"}},{"percent":1.5,"labels":{"canary":"true"}},{"percent":100,"labels":{"canary":"true"}}],"bake":"90s","min_acked":50,"author":"token (says ana)","message":"why"`},
		{"POST /api/v1/rollouts", start, 409, "is under way"},
		{"POST /api/v1/groups/default/unfreeze", `{}`, 409, "is under way"},
	} {
		withToken(t, h, q)
	}
	var list api.RolloutList
	if err := json.Unmarshal(ask(h, "GET /api/v1/rollouts", "", "Authorization", "Bearer secret").Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	id := list.Items[0].ID
	for _, q := range []question{
		{"GET /api/v1/rollouts/" + id, "", 200, `"phase":"running","step":1,`},
		{"POST /api/v1/rollouts/" + id + "/pause", "", 200, `"phase":"paused","step":1,`},
		{"GET /api/v1/rollouts/" + id, "", 200, `"waits_for":"it is paused by token"`},
		{"POST /api/v1/rollouts/" + id + "/resume", `{"message":"go"}`, 200, `"phase":"running","step":1,`},
		{"POST /api/v1/rollouts/" + id + "/promote", `{}`, 400, `"field":"message"`},
		{"POST /api/v1/rollouts/" + id + "/promote", `{"message":"looks good","author":"ben"}`, 200, `"why":"promote by token (says ben): looks good"`},
		{"POST /api/v1/rollouts/" + id + "/abort", `{}`, 200, `"phase":"aborted","step":2,`},
		{"POST /api/v1/rollouts/" + id + "/pause", `{}`, 404, "is aborted since"},
		{"POST /api/v1/rollouts/r9-123456/pause", `{}`, 404, `no rollout has the ID \"r9-123456\"","hint":"the rollouts are ` + id + ` (aborted)"`},
		{"POST /api/v1/rollouts/r9-123456/abort", `{}`, 404, `no rollout has the ID`},
		{"GET /api/v1/rollouts/..%2Fhead", "", 404, `no rollout has the ID`},
		{"POST /api/v1/rollouts/" + id + "/stop", `{}`, 404, "path not found"},
	} {
		withToken(t, h, q)
	}
	long := strings.Repeat("a", 5000)
	for what, want := range map[string]string{
		"GET /api/v1/rollouts/r2-" + long:             "no rollout has the ID",
		"POST /api/v1/rollouts/r2-" + long + "/abort": "no rollout has the ID",
		"POST /api/v1/rollouts/r2" + long + "/pause":  "no rollout has the ID",
		"POST /api/v1/groups/" + long + "/freeze":     "has no group",
		"POST /api/v1/groups/" + long + "/unfreeze":   "is not frozen",
	} {
		withToken(t, h, question{what, `{"message":"x"}`, 404, want})
		if n := ask(h, what, `{"message":"x"}`, "Authorization", "Bearer secret").Body.Len(); n > 1000 {
			t.Errorf("%.40s: %d bytes", what, n)
		}
	}
	for _, want := range []string{"start of rollout " + id + " by token (says ana): why", "pause of rollout " + id + " by token: ", "promote of rollout " + id + " by token (says ben): looks good"} {
		if !slices.Contains(*told, want) {
			t.Errorf("%q was not reported: %q", want, *told)
		}
	}
}

// Only callers that may commit may freeze or roll out; all callers may read.
func TestSteeringNeedsProof(t *testing.T) {
	s, _ := steering(t)
	s.Token = nil
	h := s.Handler(loopback)
	changes := []string{"POST /api/v1/groups/default/freeze", "POST /api/v1/groups/default/unfreeze", "POST /api/v1/rollouts", "POST /api/v1/rollouts/r1-123456/abort", "POST /api/v1/rollouts/r1-123456/promote"}
	for _, what := range changes {
		withToken(t, h, question{what, `{"message":"x"}`, 403, "needs a unix socket, a token or a client certificate"})
	}
	withToken(t, h, question{"GET /api/v1/rollouts", "", 200, "RolloutList"})
	s, _ = steering(t)
	s.Revisions.Write = false
	for _, what := range changes {
		withToken(t, s.Handler(loopback), question{what, `{"message":"x"}`, 403, "this server does not accept commits"})
	}
	s.Revisions = nil
	for _, what := range append(changes, "GET /api/v1/rollouts", "GET /api/v1/rollouts/r1-123456") {
		withToken(t, s.Handler(loopback), question{what, "", 404, "this server has no store"})
	}
}

// An unknownRollout is a store with a rollout of unknown groups.
type unknownRollout struct{ api.Steering }

func (unknownRollout) Rollouts(context.Context, string) (*api.RolloutList, error) {
	return &api.RolloutList{Items: []api.Rollout{{ID: "r2-x"}}}, nil
}

// A rollout is paused with the role operate, and changed with the role commit, for all its groups.
func TestRolesOfRollouts(t *testing.T) {
	s, _ := steering(t)
	withToken(t, s.Handler(loopback), question{"POST /api/v1/groups/default/freeze", `{"message":"x","revision":"r1"}`, 200, ""})
	withRoles(t, s, "ops operate default", "ops-pay operate pay", "ci commit default", "ci-pay commit pay")
	h := s.Handler(public)
	w := ask(h, "POST /api/v1/rollouts", `{"message":"why","revision":"r2","of":["default"],"steps":[{"percent":1}]}`, as("ci")...)
	var list api.RolloutList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
		t.Fatal(w.Body, err)
	}
	for _, c := range []struct {
		as, change string
		code       int
		answer     string
	}{
		{"ops-pay", "pause", 403, `token ops-pay lacks the role operate for group \"default\"`},
		{"ci-pay", "pause", 403, `token ci-pay lacks the role operate for group \"default\"`},
		{"ops", "pause", 200, `"phase":"paused"`},
		{"ops", "resume", 403, "token ops lacks the role commit"},
		{"ci-pay", "resume", 403, `token ci-pay lacks the role commit for group \"default\"`},
		{"ci", "resume", 200, `"phase":"running"`},
		{"ops", "promote", 403, "lacks the role commit"},
		{"ci-pay", "promote", 403, `for group \"default\"`},
		{"ops", "abort", 403, "lacks the role commit"},
		{"ci-pay", "abort", 403, `for group \"default\"`},
		{"ci", "abort", 200, `"phase":"aborted"`},
	} {
		w := ask(h, "POST /api/v1/rollouts/"+list.Items[0].ID+"/"+c.change, `{"message":"x"}`, as(c.as)...)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.answer) {
			t.Errorf("SAFE-19 %s by %s: %d %s, want %d %s", c.change, c.as, w.Code, w.Body, c.code, c.answer)
		}
	}
	s.Revisions.Steering = unknownRollout{}
	if w := ask(h, "POST /api/v1/rollouts/r2-x/pause", `{}`, as("ops")...); w.Code != 403 || !strings.Contains(w.Body.String(), "for all groups: the groups of the rollout are unknown") {
		t.Errorf("SAFE-19 %d %s", w.Code, w.Body)
	}
}
