package inspect

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A watched item is printed again when it has changed. A change of only its age does not count.
func TestWatchPrintsOnlyChangedItems(t *testing.T) {
	list := func(clients ...api.Client) *listing {
		l := &listing{}
		for _, c := range clients {
			l.add(c, c.Node, []string{c.Node})
		}
		return l
	}
	at := time.Now()
	a, b := api.Client{Node: "a", Since: at, State: api.Synced}, api.Client{Node: "b", Since: at}
	worse := a
	worse.State = api.Nacked
	if l := changed(list(a, b), list(a, b)); len(l.items) != 0 {
		t.Error(l)
	}
	if names := removed(list(a, b, b), list(worse)); len(names) != 1 || names[0] != "b" {
		t.Error(names)
	}
	if l := changed(list(a, b), list(b, worse)); len(l.items) != 1 || l.items[0].name != "a" {
		t.Error(l)
	}
}
