package client_test

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

func aliased(name, body string, aliases ...string) *xds.Resource {
	r := xds.NewResource(xds.Cluster, name, []byte(body))
	r.Aliases = aliases
	return r
}

// Each subscribed name that matches a refused resource gets one Refused event. Later it gets Updated,
// Removed or Absent with the same Name, even if the name also matches other resources.
func TestClientRefusalsEnd(t *testing.T) {
	has := func(rs ...*xds.Resource) *xds.Changes { return &xds.Changes{Upserts: rs} }
	removed := &xds.Changes{Removed: []string{"x"}}
	missing := &xds.Changes{Missing: []string{"x"}}
	const gone = ": the server reports that it does not exist"
	for _, c := range []struct {
		name    string
		asked   []string
		changes []*xds.Changes
		events  []string
		s       client.Status // of the last subscribed name
	}{
		{"CLI-12 a name matches another resource, and its own refused resource is removed", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1", "x"), aliased("x", "bad")), removed, removed},
			[]string{"updated y [* x] 1", "refused x [* x]: it is bad", "absent x [* x] 1"}, client.Accepted},
		{"CLI-12 a name matches another resource, and its own refused resource is missing", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1", "x"), aliased("x", "bad")), missing, missing},
			[]string{"updated y [* x] 1", "refused x [* x]: it is bad", "absent x [* x] 1" + gone}, client.Accepted},
		{"CLI-12 a name matches two other resources, and gets one event about its own", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1", "x"), aliased("z", "1", "x"), aliased("x", "bad")), removed},
			[]string{"updated y [* x] 1", "updated z [* x] 1", "refused x [* x]: it is bad", "absent x [* x] 1"}, client.Accepted},
		{"CLI-12 a name gets the refusal and the correction of a second matching resource", []string{"x"}, []*xds.Changes{has(aliased("y", "1", "x")), has(aliased("z", "bad", "x")), has(aliased("z", "bad", "x")), has(aliased("z", "2", "x"))},
			[]string{"updated y [x] 1", "refused z [x]: it is bad", "updated z [x] 2"}, client.Accepted},
		{"CLI-12 each of two refusals has its own events", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "bad", "x"), aliased("z", "bad", "x")), {Removed: []string{"y"}}},
			[]string{"refused y [* x]: it is bad", "refused z [* x]: it is bad", "absent y [* x]"}, client.Rejected},
		{"CLI-12 after two refused resources are removed, the name does not exist", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "bad", "x"), aliased("z", "bad", "x")), {Removed: []string{"y"}}, {Removed: []string{"z"}}, removed},
			[]string{"refused y [* x]: it is bad", "refused z [* x]: it is bad", "absent y [* x]", "absent z [* x]"}, client.DoesNotExist},
		{"CLI-12 a second refusal without the alias does not end the first", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "bad", "x")), has(aliased("y", "bad")), {Removed: []string{"y"}}},
			[]string{"refused y [* x]: it is bad", "absent y [* x]"}, client.DoesNotExist},
		{"CLI-12 the corrected resource has lost the alias: absent for the alias", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "bad", "x")), has(aliased("y", "1"))},
			[]string{"refused y [* x]: it is bad", "updated y [*] 1", "absent y [x]"}, client.DoesNotExist},
		{"CLI-12 the held version is removed: absent for the alias of the refused version", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "1")), has(aliased("y", "bad", "x")), {Removed: []string{"y"}}},
			[]string{"updated y [*] 1", "refused y [* x] 1: it is bad", "removed y [*] 1", "absent y [x]"}, client.DoesNotExist},
		{"CLI-12 the absence of one name does not end a refusal for another", []string{"x", "z"}, []*xds.Changes{has(aliased("y", "1", "x")), has(aliased("y", "bad", "z")), removed},
			[]string{"updated y [x] 1", "refused y [z] 1: it is bad", "removed y [x] 1"}, client.Rejected},
		{"CLI-12 the absence of a name removes its held and refused resource in one event", []string{"x"}, []*xds.Changes{has(aliased("y", "1", "x")), has(aliased("y", "bad", "x")), removed},
			[]string{"updated y [x] 1", "refused y [x] 1: it is bad", "removed y [x] 1"}, client.DoesNotExist},
		{"CLI-12 an absent name does not match the refused resource", []string{"*", "x"}, []*xds.Changes{has(aliased("y", "bad", "x")), removed, removed, has(aliased("y", "bad", "x"))},
			[]string{"refused y [* x]: it is bad", "absent y [x]", "refused y [x]: it is bad"}, client.Rejected},
		{"CLI-12 a match of another resource does not end the refusal of the name's own resource", []string{"x"}, []*xds.Changes{has(aliased("x", "bad")), has(aliased("y", "1", "x")), has(aliased("y", "1", "x"))},
			[]string{"refused x [x]: it is bad", "updated y [x] 1"}, client.Rejected},
		{"CLI-3 a refused resource is missing: the wildcard gets absent once", []string{"*"}, []*xds.Changes{has(aliased("x", "bad")), missing, missing},
			[]string{"refused x [*]: it is bad", "absent x [*]" + gone}, client.Requested},
	} {
		t.Run(c.name, func(t *testing.T) {
			talk := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, c.asked...)
			for _, changes := range c.changes {
				_ = talk.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: changes})
			}
			talk.wantEvents(c.events...)
			if got := talk.State(xds.Cluster, c.asked[len(c.asked)-1]).Status; got != c.s {
				t.Errorf("status %s, want %s", got, c.s)
			}
		})
	}

	t.Run("CLI-12 a new subscription by alias does not repeat the refusal for the wildcard", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "*")
		bad := &xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("y", "bad", "x"))}
		_ = c.Receive(bad)
		c.Subscribe(xds.Cluster, "x")
		c.sendRequests()
		_ = c.Receive(bad)
		c.wantEvents("refused y [*]: it is bad", "refused y [x]: it is bad")
		c.Unsubscribe(xds.Cluster, "x") // the server does not know the name yet
		_ = c.Receive(bad)
		c.wantEvents()
	})

	t.Run("CLI-12 a retained resource stays in error after the removal of an alias", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{Retain: true}, xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("x", "bad"))})
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("y", "1", "x")}, Removed: []string{"x"}}})
		c.wantEvents("refused x [x]: it is bad", "updated y [x] 1", "errored y [x] 1"+gone, "absent x [x] 1")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "3", Changes: has(aliased("y", "1", "x"))})
		c.wantEvents("updated y [x] 1")
	})

	t.Run("CLI-12 the error of a retained resource is reported once to each name", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{Retain: true}, xds.Cluster, "x", "z")
		for _, changes := range []*xds.Changes{has(aliased("y", "1", "x")), {Removed: []string{"y"}}, has(aliased("y", "bad", "z")), {Removed: []string{"y"}}, {Removed: []string{"y"}}} {
			_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: changes})
		}
		c.wantEvents("updated y [x] 1", "errored y [x] 1"+gone, "refused y [z] 1: it is bad", "errored y [z] 1"+gone)
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Errors: []xds.ResourceError{{Name: "y", Status: xds.Status{Code: 13, Message: "no"}}}})
		c.wantEvents("errored y [z x] 1: the server reports code 13: no")
		c.Unsubscribe(xds.Cluster, "x")
		c.sendRequests()
		c.Subscribe(xds.Cluster, "x")
		c.sendRequests()
		c.wantEvents()
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "3", Changes: has(aliased("y", "2", "x"))})
		c.wantEvents("updated y [x] 2", "absent y [z]")
	})

	t.Run("CLI-12 the held version is sent again: absent for the alias of the refused version", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "x", "z")
		for _, changes := range []*xds.Changes{has(aliased("y", "1", "x")), has(aliased("y", "bad", "z")), has(aliased("y", "1", "x"))} {
			_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: changes})
		}
		c.wantEvents("updated y [x] 1", "refused y [z] 1: it is bad", "absent y [z]")
	})

	t.Run("CLI-12 the removal of the matching name keeps the refusal for a name that is not sent yet", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "x", "z")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("y", "1", "x"))})
		c.Subscribe(xds.Cluster, "y")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("y", "bad", "z")}, Removed: []string{"x"}}})
		c.wantEvents("updated y [x] 1", "refused y [y z] 1: it is bad", "removed y [y x] 1", "refused y [y]: it is bad")
	})

	t.Run("CLI-12 an error ends with its resource, also for a name that is not sent yet", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("y", "1", "x")), Errors: []xds.ResourceError{{Name: "y", Status: xds.Status{Code: 5, Message: "no"}}}})
		c.Subscribe(xds.Cluster, "y")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: removed})
		c.wantEvents("updated y [x] 1", "errored y [x] 1: the server reports code 5: no", "removed y [y x] 1")
		if is := c.State(xds.Cluster, "y").Status; is != client.DoesNotExist {
			t.Errorf("status %s, want DoesNotExist", is)
		}
	})

	t.Run("CLI-3 a missing name removes the held resource and keeps a refusal by alias", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{DropOnError: true}, xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{aliased("x", "1"), aliased("y", "bad", "x")}, Missing: []string{"x"}}})
		c.wantEvents("updated x [x] 1", "refused y [x]: it is bad", "removed x [x] 1"+gone)
	})

	t.Run("CLI-6 CLI-12 the removal of a name that is not sent yet keeps its adopted resource", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "z")
		c.Subscribe(xds.Cluster, "x", "y")
		c.Adopt(xds.Cluster, true, aliased("y", "1", "x"))
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: removed})
		c.wantHeld(xds.Cluster, "y=1")
	})

	bothVariants(t, "CLI-2 CLI-5 a duplicate is not used after an unsubscription that is not sent yet", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Cluster, "*")
		twice := &xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("x", "1"), aliased("x", "2"))}
		_ = c.Receive(twice)
		c.Unsubscribe(xds.Cluster, "*")
		_ = c.Receive(twice)
		c.wantHeld(xds.Cluster, "")
		c.wantEvents("refused x [*]: duplicate resource")
	})

	bothVariants(t, "CLI-2 CLI-5 a duplicate is not used when the memory for refusals is full", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{DropOnError: true}, xds.Endpoint, "*")
		many := []*xds.Resource{xds.NewResource(xds.Endpoint, "x", []byte("1"))}
		for i := range 1000 {
			many = append(many, xds.NewResource(xds.Endpoint, fmt.Sprint(i), []byte("bad")))
		}
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "1", Changes: has(many...)})
		_ = c.Receive(&xds.Response{Type: xds.Endpoint, Nonce: "2", Changes: has(xds.NewResource(xds.Endpoint, "x", []byte("1")), xds.NewResource(xds.Endpoint, "x", []byte("2")))})
		c.wantHeld(xds.Endpoint, "")
	})

	bothVariants(t, "CLI-3 a new subscription gets the known refusal of its resource", func(t *testing.T, v xds.Variant) {
		c := subscribe(t, v, client.Options{}, xds.Cluster, "*")
		bad := &xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("x", "bad"))}
		_ = c.Receive(bad)
		c.Subscribe(xds.Cluster, "x")
		c.sendRequests()
		_ = c.Receive(bad)
		c.advance(100)
		c.wantEvents("refused x [*]: it is bad", "refused x [x]: it is bad")
	})

	t.Run("CLI-3 a refused resource is missing: absent also for a name that is not sent yet", func(t *testing.T) {
		c := subscribe(t, xds.Delta, client.Options{}, xds.Cluster, "*")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Changes: has(aliased("x", "bad"))})
		c.Subscribe(xds.Cluster, "x")
		_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "2", Changes: missing})
		c.wantEvents("refused x [*]: it is bad", "refused x [x]: it is bad", "absent x [* x]"+gone)
	})
}
