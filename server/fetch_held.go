package server

import (
	"container/list"
	"net"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// maxFetch is how many bytes a request to a Fetch method may have: as many as the body of
// a poll by REST. A stream's may be larger, for it states all that its client has.
const maxFetch = 4 << 20

// pollsPart is which part of [Limits.HeldInAll] polls have, beside that of streams, so that
// neither keep the other out.
const pollsPart = 4

// A cellar is what polls make the server hold while they are held: names and nodes. When it
// is full, who wants more takes it from the newest poll of the address that has most.
type cellar struct {
	max int // bytes; 0: any number

	mu     sync.Mutex // held for memory only
	used   int
	owners map[string]*cellarOwner
}

// A cellarOwner has something in a cellar.
type cellarOwner struct {
	used  int
	polls list.List // of *stored, in the order of arrival
}

// A stored is what one poll has in a cellar. Owned by its cellar.
type stored struct {
	owner string
	bytes int
	lost  loss
	at    *list.Element // of the owner's polls; nil: it has nothing any more
}

func newCellar(max int) *cellar { return &cellar{max: max, owners: map[string]*cellarOwner{}} }

// enter finds room for what a poll from an address has; nil: there is none. No room is made
// for an address that would then have as much as the one that loses it.
func (c *cellar) enter(peer net.Addr, bytes int, lost loss) *stored {
	s := &stored{owner: fair.Owner(peer), bytes: bytes, lost: lost}
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
		last := most.polls.Back().Value.(*stored)
		last.lost.tell(errLostHeld)
		c.remove(last)
	}
	o := c.owners[s.owner]
	if o == nil {
		o = &cellarOwner{}
		c.owners[s.owner] = o
	}
	s.at = o.polls.PushBack(s)
	o.used += bytes
	c.used += bytes
	return s
}

// most returns the owner that has most; nil: nobody has anything. There are as many as
// polls at most, and it is asked for only when the cellar is full.
func (c *cellar) most() (most *cellarOwner) {
	for _, o := range c.owners {
		if most == nil || o.used > most.used {
			most = o
		}
	}
	return most
}

// leave gives back what a poll had. A second time does nothing, nor does it after a loss.
func (c *cellar) leave(s *stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.at != nil {
		c.remove(s)
	}
}

func (c *cellar) remove(s *stored) {
	o := c.owners[s.owner]
	o.polls.Remove(s.at)
	s.at = nil
	o.used -= s.bytes
	c.used -= s.bytes
	if o.polls.Len() == 0 {
		delete(c.owners, s.owner)
	}
}

// taken is how many bytes polls have.
func (c *cellar) taken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// errLostHeld is what is noted of a poll that has lost its room. Its client is told that
// nothing is new, which is so.
var errLostHeld = exceeds(tooMany, limitHeldInAll, codes.Unavailable, "limit exceeded: polls hold the maximum of names, and most of them are of this address")

// holds is how much memory a poll takes while it is held.
func (p *Poll) holds() int { return weight(p.names) + size(p.info.Node) + len(p.stated) }

// sit finds a place for a poll that is to be held, and room for what it has.
func (p *Poll) sit() error {
	polls := p.server.polls
	p.lost = newLoss()
	if p.seat = polls.held.enter(p.info.Peer, p.lost); p.seat == nil {
		return polls.held.full
	}
	if err := polls.held.name(p.seat, p.info.Node.ID); err != nil {
		return err
	}
	if p.stored = polls.cellar.enter(p.info.Peer, p.holds(), p.lost); p.stored == nil {
		return exceeds(tooMany, limitHeldInAll, codes.Unavailable, "limit exceeded: names and a node of %d bytes in a poll that is to be held, and there is no room for them: polls have %d bytes; try again later", p.holds(), polls.cellar.max)
	}
	return nil
}

// stand gives back what the poll had as long as it was held.
func (p *Poll) stand() {
	if p.seat != nil {
		p.server.polls.held.leave(p.seat)
	}
	if p.stored != nil {
		p.server.polls.cellar.leave(p.stored)
	}
}
