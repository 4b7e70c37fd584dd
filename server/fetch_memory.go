package server

import (
	"container/list"
	"net"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// maxFetch is the largest request of a Fetch method in bytes, the same as for a poll over REST. A
// stream may send a larger request, which states all resources that its client has.
const maxFetch = 4 << 20

// pollsPart is the divisor of [Limits.HeldInAll] for polls. Polls may use a quarter of that limit,
// in addition to the memory of streams. So polls cannot use up the memory of streams, or the
// reverse.
const pollsPart = 4

// A pollMemory limits the memory of names and nodes of held polls. When the memory is full, a new
// poll displaces the newest poll of the address that uses most.
type pollMemory struct {
	max int // bytes; 0: any number

	mu     sync.Mutex // held for memory only
	used   int
	owners map[string]*memoryOwner
}

// A memoryOwner is an address with held polls.
type memoryOwner struct {
	used  int
	polls list.List // of *reservation, in the order of arrival
}

// A reservation is the memory of one poll. The pollMemory owns it.
type reservation struct {
	owner string
	bytes int
	lost  notices
	at    *list.Element // in the owner's polls; nil: given back
}

func newPollMemory(max int) *pollMemory {
	return &pollMemory{max: max, owners: map[string]*memoryOwner{}}
}

// enter reserves memory for a poll from an address. It returns nil if no memory is free for the
// poll. A poll displaces other polls only if its address then still uses less memory than the
// address that uses most.
func (c *pollMemory) enter(peer net.Addr, bytes int, lost notices) *reservation {
	s := &reservation{owner: fair.Owner(peer), bytes: bytes, lost: lost}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.max > 0 && c.used+bytes > c.max {
		most, have := c.most(), 0
		if o := c.owners[s.owner]; o != nil {
			have = o.used
		}
		if most == nil || have+bytes >= most.used {
			return nil
		}
		last := most.polls.Back().Value.(*reservation)
		last.lost.lose(errLostHeld)
		c.remove(last)
	}
	o := c.owners[s.owner]
	if o == nil {
		o = &memoryOwner{}
		c.owners[s.owner] = o
	}
	s.at = o.polls.PushBack(s)
	o.used += bytes
	c.used += bytes
	return s
}

// most returns the address that uses most, or nil. It is called only when the memory is full, and there are at most
// as many addresses as polls.
func (c *pollMemory) most() (most *memoryOwner) {
	for _, o := range c.owners {
		if most == nil || o.used > most.used {
			most = o
		}
	}
	return most
}

// leave gives back the memory of a poll. It does nothing after the first call, or after the poll was displaced.
func (c *pollMemory) leave(s *reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.at != nil {
		c.remove(s)
	}
}

func (c *pollMemory) remove(s *reservation) {
	o := c.owners[s.owner]
	o.polls.Remove(s.at)
	s.at = nil
	o.used -= s.bytes
	c.used -= s.bytes
	if o.polls.Len() == 0 {
		delete(c.owners, s.owner)
	}
}

// taken returns how many bytes polls use.
func (c *pollMemory) taken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// errLostHeld is logged for a poll that lost its memory. Its client gets the answer that nothing is new, which is
// true.
var errLostHeld = limitError(tooMany, limitHeldInAll, codes.Unavailable, "limit exceeded: polls hold the maximum of names, and most of them are of this address")

// holds estimates the memory of a poll while it is held.
func (p *Poll) holds() int { return weight(p.names) + size(p.info.Node) + len(p.stated) }

// reserve reserves a seat and memory for a poll that is to be held.
func (p *Poll) reserve() error {
	polls := p.server.polls
	p.lost = newNotices()
	p.seat = polls.held.enter(p.info.Peer, p.lost)
	if p.seat == nil {
		return polls.held.full
	}
	if err := polls.held.name(p.seat, p.info.Node.ID); err != nil {
		return err
	}
	p.stored = polls.memory.enter(p.info.Peer, p.holds(), p.lost)
	if p.stored == nil {
		return limitError(tooMany, limitHeldInAll, codes.Unavailable, "limit exceeded: names and a node of %d bytes in a poll that is to be held, and there is no room for them: polls have %d bytes; try again later", p.holds(), polls.memory.max)
	}
	return nil
}

// release gives back the seat and the memory of a poll.
func (p *Poll) release() {
	if p.seat != nil {
		p.server.polls.held.leave(p.seat)
	}
	if p.stored != nil {
		p.server.polls.memory.leave(p.stored)
	}
}
