package protocol_test

import (
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func aliased(name, body string, aliases ...string) *xds.Resource {
	r := xds.NewResource(xds.Cluster, name, []byte(body))
	r.Aliases = aliases
	return r
}

// What was refused ends for all who were told so, however they find it.
func TestClientRefusalsEnd(t *testing.T) {
	has := func(rs ...*xds.Resource) *xds.Changes { return &xds.Changes{Upserts: rs} }
	removed := &xds.Changes{Removed: []string{"x"}}
	missing := &xds.Changes{Missing: []string{"x"}}
	const gone = ": the server says that it does not exist"
	for _, c := range []struct {
		name  string
		asked []string
		says  []*xds.Changes
		told  []string
		s     protocol.ClientStatus // of the last name that was asked
	}{
		{"CLI-12 a name that finds another hears that this is in use when its own, which was refused, is removed", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1", "x"), aliased("x", "bad")), removed, removed},
			[]string{"updated y [* x] 1", "refused x [* x]: it is bad", "updated y [x] 1", "absent x [*]"}, protocol.Accepted},
		{"CLI-12 and when it is missing", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1", "x"), aliased("x", "bad")), missing, missing},
			[]string{"updated y [* x] 1", "refused x [* x]: it is bad", "updated y [x] 1", "absent x [*]" + gone}, protocol.Accepted},
		{"CLI-12 of several it hears once", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1", "x"), aliased("z", "1", "x"), aliased("x", "bad")), removed},
			[]string{"updated y [* x] 1", "updated z [* x] 1", "refused x [* x]: it is bad", "updated y [x] 1", "absent x [*]"}, protocol.Accepted},
		{"CLI-3 what is missing and was refused is told to who finds all", []string{"*"}, []*xds.Changes{has(aliased("x", "bad")), missing, missing},
			[]string{"refused x [*]: it is bad", "absent x [*]" + gone}, protocol.Requested},
	} {
		t.Run(c.name, func(t *testing.T) {
			talk := ask(t, xds.Delta, protocol.ClientOptions{}, xds.Cluster, c.asked...)
			for _, changes := range c.says {
				_ = talk.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: changes})
			}
			talk.told(c.told...)
			if got := talk.State(xds.Cluster, c.asked[len(c.asked)-1]).Status; got != c.s {
				t.Errorf("it is %s, not %s", got, c.s)
			}
		})
	}

	t.Run("CLI-3 what is missing and was refused is told also if it is asked for by name and the server does not know it yet", func(t *testing.T) {
		c := ask(t, xds.Delta, protocol.ClientOptions{}, xds.Cluster, "*")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("x", "bad"))})
		c.Subscribe(xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: missing})
		c.told("refused x [*]: it is bad", "absent x [* x]"+gone)
	})
}
