package clients

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Fleet counts the connected clients by agent, most clients first. It also returns the largest last responses, and the
// largest numbers of subscribed names: at most so many of both.
func (t *Tracker) Fleet(most int) (agents []api.AgentCount, responses, names []api.TypeLoad) {
	by := map[string]*api.AgentCount{}
	all := t.gather(nil, false).all
	for i := range all {
		s := &all[i]
		a := by[s.agent]
		if a == nil {
			a = &api.AgentCount{Agent: s.agent, Clients: api.Counts{By: map[api.State]int{}}}
			by[s.agent] = a
		}
		a.Clients.Connected++
		a.Clients.By[s.state.name()]++
		for _, r := range s.rows {
			r.mu.Lock()
			for i := range r.types {
				u := &r.types[i]
				load := api.TypeLoad{Node: s.node, Type: u.typ.String(), Bytes: int(u.sent.bytes), Resources: int(u.sent.count), Names: int(u.names)}
				if s.key.stream != 0 {
					load.Node = PathOf(s.key.stream)
				}
				responses = largest(responses, load, most, bySize)
				names = largest(names, load, most, byNames)
			}
			r.mu.Unlock()
		}
	}
	for _, a := range by {
		agents = append(agents, *a)
	}
	slices.SortFunc(agents, func(a, b api.AgentCount) int {
		return cmp.Or(b.Clients.Connected-a.Clients.Connected, strings.Compare(a.Agent, b.Agent))
	})
	return agents, responses, names
}

func bySize(a, b api.TypeLoad) int {
	return cmp.Or(b.Bytes-a.Bytes, strings.Compare(a.Node, b.Node), strings.Compare(a.Type, b.Type))
}

func byNames(a, b api.TypeLoad) int {
	return cmp.Or(b.Names-a.Names, strings.Compare(a.Node, b.Node), strings.Compare(a.Type, b.Type))
}

// largest inserts an element into the sorted list of the largest ones.
func largest(all []api.TypeLoad, one api.TypeLoad, most int, compare func(a, b api.TypeLoad) int) []api.TypeLoad {
	if len(all) == most && compare(all[most-1], one) <= 0 {
		return all
	}
	at, _ := slices.BinarySearchFunc(all, one, compare)
	all = slices.Insert(all, at, one)
	return all[:min(len(all), most)]
}
