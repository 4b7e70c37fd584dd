package quarantine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A rollout is a fixture whose nodes are in the group g. Some of them are in its lane.
type rollout struct {
	*fixture
	t *testing.T
}

// serve sets the cluster b in the group and in its lane; "": the lane is empty. Nodes with the prefix are in the
// lane.
func (r rollout) serve(group, lane, prefix string) {
	r.t.Helper()
	if _, err := r.st.Update(func(tx *store.Tx) error {
		for name, text := range map[string]string{"g": group, "g" + groups.LaneSuffix: lane} {
			if text != "" {
				tx.Group(name).Set(xds.NewResource(xds.Cluster, "a", message("a", "1")), xds.NewResource(xds.Cluster, "b", message("b", text)))
			}
		}
		tx.Select(func(_ context.Context, n *xds.Node) ([]string, error) {
			if prefix != "" && strings.HasPrefix(n.ID, prefix) {
				return []string{"g" + groups.LaneSuffix}, nil
			}
			return []string{"g"}, nil
		})
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// TestLanes has the clients of a group and of its lane.
func TestLanes(t *testing.T) {
	for name, dial := range variants {
		for asks, names := range map[string][]string{"wildcard": {"*"}, "names": {"a", "b"}} {
			run := func(what string, f func(r rollout, join func(id string) *xdstest.Client)) {
				t.Run("HEAL-3 "+name+" "+asks+": "+what, func(t *testing.T) {
					within(t, func(r *fixture) {
						r.guilty = []string{"b"}
						conn := xdstest.Serve(r, r.server)
						f(rollout{r, t}, func(id string) *xdstest.Client {
							c := dial(r, conn, xdstest.WithNode(xds.Node{ID: id, UserAgentName: "envoy"}))
							r.nodes[c] = id
							c.Subscribe(xds.Cluster, names...)
							return c
						})
					})
				})
			}
			run("a client that starts in a lane gets the version of the group", func(r rollout, join func(string) *xdstest.Client) {
				r.serve("1", "", "")
				old := join("old")
				r.answer(old, "no", bad())
				r.serve("2", "", "")
				r.answer(old, "no", bad())
				r.serve("2", "bad", "new")
				r.gets(join("new1"), "2", "", "bad")
				r.gets(join("new2"), "1", "", "bad", "2")
			})
			run("a version that no client of the group accepted does not count", func(r rollout, join func(string) *xdstest.Client) {
				r.serve("1", "", "")
				r.answer(join("old"), "no", bad())
				r.serve("2", "", "")
				r.serve("2", "bad", "new")
				r.gets(join("new1"), "1", "", "bad")
			})
			run("a client that moves to a lane does not change the group", func(r rollout, join func(string) *xdstest.Client) {
				r.serve("1", "", "")
				old, moves := join("old"), join("moves")
				r.answer(old, "no", bad())
				r.answer(moves, "no", bad())
				r.serve("2", "", "")
				r.answer(old, "no", bad())
				r.answer(moves, "no", bad())
				r.serve("2", "bad", "moves")
				r.answer(moves, "no", bad("b"))
				if _, err := r.st.Update(func(tx *store.Tx) error {
					tx.Group("g").Set(xds.NewResource(xds.Cluster, "a", message("a", "2"))) // old does not answer
					return nil
				}); err != nil {
					r.t.Fatal(err)
				}
				synctest.Wait()
				r.serve("bad", "bad", "moves")
				r.gets(join("new"), "2", "", "bad")
			})
			run("an aborted rollout leaves no version", func(r rollout, join func(string) *xdstest.Client) {
				r.serve("1", "", "")
				r.answer(join("old"), "no", bad())
				r.serve("1", "2", "new")
				lane := join("new1")
				r.answer(lane, "no", bad())
				r.serve("1", "2", "")
				r.answer(lane, "no", bad())
				r.serve("1", "bad", "new")
				r.gets(join("new2"), "1", "", "bad")
			})
			run("what clients of a lane accepted counts when the group gets it", func(r rollout, join func(string) *xdstest.Client) {
				r.serve("1", "", "")
				c := join("moves")
				r.answer(c, "no", bad())
				r.serve("1", "2", "moves")
				r.answer(c, "no", bad())
				r.serve("2", "2", "")
				r.answer(c, "no", bad())
				r.serve("bad", "2", "")
				r.gets(join("new"), "2", "", "bad")
			})
		}
	}
}
