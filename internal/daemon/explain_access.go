package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// allowed returns a function that reports, for explain, whether the access rules let a client see a
// resource. It returns nil if identities are not bound to nodes: then everything is allowed. The
// function groupsOf returns the groups of a node.
func (i *identityFinder) allowed(groupsOf func(*xds.Node) []string) func(*server.Stream, *xds.Node, *xds.Type, string) (ok bool, why string) {
	if i.source == nil {
		return nil
	}
	return func(st *server.Stream, n *xds.Node, t *xds.Type, name string) (bool, string) {
		var client access.Identity
		if st != nil {
			if id, ok := st.Identity.(*access.Identity); ok {
				client = *id
			}
		}
		switch {
		case st == nil:
			return true, "the identity of the client is unknown: it is not connected"
		case i.access == "" && client.Kind == access.Unix:
			return true, "clients of the unix socket may see everything"
		}
		g, err := i.source.Policy().Decide(client, n)
		if err == nil {
			all := slices.Clone(groupsOf(n)) // the source owns the slice
			for i := range all {
				all[i] = groups.BaseOf(all[i])
			}
			g, err = g.In(all)
		}
		switch {
		case err != nil:
			return false, err.Error()
		case !g.Allows(t, name):
			return false, fmt.Sprintf("%s may not see %s %q, by %s", logText(client.String()), t.Short, name, rulesOf(g))
		}
		return true, "the client may have it, by " + rulesOf(g)
	}
}

func rulesOf(g access.Grant) string {
	switch names := g.Rules(); len(names) {
	case 0:
		return "the default rules"
	case 1:
		return "rule " + logText(names[0])
	default:
		return "rules " + logText(strings.Join(names, ", "))
	}
}
