package evidence

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// This file has the kinds and the owners of clients, as bits. They decide whose ACKs count first, and they
// limit what clients that accept everything can change.

// A support is the kinds and the owners of the clients that accepted a version.
type support struct {
	by     agentSet
	owners ownerSet
}

func (s *support) add(o support) { s.by, s.owners = s.by|o.by, s.owners|o.owners }

// others is the kind of all clients whose kind has no index of its own. No client has the same kind.
const others = ""

// An agentSet has bit i for evidence.agents[i].
type agentSet uint16

func (b agentSet) has(e *evidence, agent string) bool {
	i := slices.Index(e.agents, agent)
	return i >= 0 && b&(1<<i) != 0
}

// An ownerSet has one bit for each owner of clients. The bit is a hash: two owners may have the same bit.
// The hash is equal on all servers.
type ownerSet uint64

func ownersOf(owner string) ownerSet {
	h := fnv.New64a()
	h.Write([]byte(owner))
	sum := h.Sum64()
	return 1 << ((sum ^ sum>>32) % 64)
}

func (o ownerSet) count() int { return bits.OnesCount64(uint64(o)) }

// AgentOf returns the kind of a client: its user agent.
func AgentOf(n *xds.Node) string {
	agent := n.UserAgentName + " " + n.UserAgentVersion
	return strings.Clone(agent[:min(len(agent), maxAgent)])
}

// agent returns the index of a kind of client, and adds the owners of the client to the kind. If all indexes
// are in use, a new kind takes the index of an owner that alone has several more kinds than the new owner.
// Otherwise it shares the index of others. So the kinds that one owner makes up displace each other only.
func (e *evidence) agent(name string, owners ownerSet) int {
	i := slices.Index(e.agents, name)
	switch {
	case name == others:
		return e.shared()
	case i >= 0:
	case len(e.agents) < maxAgents-1, len(e.agents) < maxAgents && slices.Contains(e.agents, others):
		e.agents = append(e.agents, name)
		i = len(e.agents) - 1
	default:
		shared := e.shared()
		i = e.crowd()
		if e.kinds(e.owners[i]) < e.kinds(owners)+2 {
			return shared
		}
		e.move(i, shared)
		e.agents[i] = name
	}
	e.owners[i] |= owners
	return i
}

// shared returns the index of others.
func (e *evidence) shared() int {
	i := slices.Index(e.agents, others)
	if i >= 0 {
		return i
	}
	if len(e.agents) == maxAgents { // in the bytes of an earlier release several kinds share the last index
		e.agents[maxAgents-1], e.owners[maxAgents-1] = others, 0
		return maxAgents - 1
	}
	e.agents = append(e.agents, others)
	return len(e.agents) - 1
}

// crowd returns a kind of the owner that alone has the most kinds.
func (e *evidence) crowd() (most int) {
	for i := range e.agents {
		if e.kinds(e.owners[i]) > e.kinds(e.owners[most]) {
			most = i
		}
	}
	return most
}

// kinds returns the number of kinds that only one owner has. For several owners it is 0. The kind others has
// no owners.
func (e *evidence) kinds(owners ownerSet) (n int) {
	for i := range e.agents {
		if owners.count() == 1 && e.owners[i] == owners {
			n++
		}
	}
	return n
}

// move turns the ACKs of a kind into ACKs of another one.
func (e *evidence) move(from, to int) {
	turn := func(by *agentSet) {
		if *by&(1<<from) != 0 {
			*by = *by&^(1<<from) | 1<<to
		}
	}
	for _, vs := range e.replaced {
		for i := range vs {
			turn(&vs[i].by)
		}
	}
	for _, names := range []map[string]acceptance{e.named, e.ahead} {
		for name, a := range names {
			turn(&a.by)
			names[name] = a
		}
	}
	for i := range e.restored.Named {
		turn(&e.restored.Named[i].By)
	}
	for i := range e.restored.Worlds {
		if e.restored.Worlds[i].Agent == from {
			e.restored.Worlds[i].Agent = to
		}
	}
	for _, w := range e.worlds[from] {
		e.keepWorld(to, w)
	}
	e.worlds[from], e.owners[from] = nil, 0
	clear(e.messages)
}
