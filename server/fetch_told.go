package server

import (
	"cmp"
	"crypto/sha256"
	"net"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A client that refuses an answer need not say so: Envoy polls on with the
// version that it had before. What was told and not acknowledged is remembered,
// so that it is not told again in a loop.

// A poller is a client that polls for a type and names: what tells it from
// others, in a fixed size. The zero poller is one that does not say who it is.
type poller [16]byte

// pollerOf tells nodes of the same id apart that are on different machines.
func pollerOf(s *Stream, names []string) poller {
	if s.Node.ID == "" {
		return poller{}
	}
	h := sha256.New()
	hashNames(h, []string{s.Node.ID, s.Type.URL, connOf(s.Peer).Addr().String()})
	hashNames(h, names)
	return poller(h.Sum(nil))
}

// connOf tells connections apart; the zero value is any.
func connOf(peer net.Addr) netip.AddrPort {
	if a, ok := peer.(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

func (p *Poll) conn() netip.AddrPort { return connOf(p.info.Peer) }

// digest is a client's version in a fixed size.
func digest(version string) (d [16]byte) {
	if version != "" {
		h := sha256.Sum256([]byte(version))
		copy(d[:], h[:])
	}
	return d
}

// A telling is the last answer to a poller.
type telling struct {
	version string   // of the answer
	to      [16]byte // digest of the version that the client had then
	poll    uint64   // id of the poll
	conn    netip.AddrPort
	at      time.Time
	tries   int  // how often the same was told before
	refused bool // it was noted that the client did not apply it
	said    bool // by the client itself
}

// traffic is what came on a connection: the ids of the first poll and of the
// last.
type traffic struct{ first, last uint64 }

// again is how long after an answer one that may have been lost is repeated, at
// first.
const again = 30 * time.Second

// patience is how long it takes until it is repeated the next time.
func (t *telling) patience() time.Duration { return again << min(t.tries, 6) }

// tells remembers the last answer to the poller, if it is known which that is.
func (p *Poll) tells(what telling) {
	if p.poller != (poller{}) {
		p.server.polls.told.put(p.poller, what)
	}
}

// judge decides what the client is not to be told, and records what it thinks
// of the last answer.
func (p *Poll) judge(req xds.Request, version string) {
	p.arrives()
	now := time.Now()
	last, known := p.server.polls.told.get(p.poller)
	e := protocol.Event{Type: p.info.Type}
	if known {
		e.Took = now.Sub(last.at)
	}
	acked := known && req.Error == nil && last.version == p.stated
	if acked {
		e.Kind, e.Version, e.Nonce, e.Settled = protocol.Acked, last.version, last.version, true
		p.server.event(&p.info, e)
		p.server.polls.told.remove(p.poller)
		known = false
	}
	as := known && last.to == digest(p.stated) // it polls as it did then
	p.standing.known, p.standing.partly = acked || as || p.stated == version, as || req.Error != nil
	e.InUse = p.stated
	switch {
	case req.Error != nil:
		e.Version = cmp.Or(strings.Clone(clip(req.Nonce)), last.version, version)
		e.Error = req.Error
		p.but = e.Version
		p.refuses(e, as && last.refused && last.version == e.Version)
		p.tells(telling{version: e.Version, to: digest(p.stated), poll: p.info.ID, conn: p.conn(), at: now, refused: true, said: true})

	case p.stated == version && as && last.version != version:
		// It has not applied what it was told, or only a part, and now the state
		// is what it was before: that is news.

	case p.stated == version:
		p.but = version

	case !as || last.version != version:

	case !p.received(last, now):
		p.before = last

	default:
		e.Version = version
		e.Error = &xds.Status{Code: int32(codes.Unknown), Message: "not applied: the client polls again with its previous version"}
		p.but = version
		p.refuses(e, last.refused)
		last.refused = true
		p.tells(last)
	}
}

// received reports whether the client is taken to have got an answer.
//
// It has for certain if another poll came on the connection of the answer, one
// after the other; Envoy takes any of its connections for the next. Else the
// answer may be lost: it is repeated, but not in a loop. A client that states no
// version may be a process that has just started, and must not wait, unless its
// connection is older than the answer.
func (p *Poll) received(last telling, now time.Time) bool {
	conns := p.server.polls.conns
	if own, known := conns.get(p.conn()); p.stated == "" && (!known || own.first > last.poll) {
		return false
	}
	if used, _ := conns.get(last.conn); last.said || p.caller.InTurn && used.last > last.poll {
		return true
	}
	return now.Sub(last.at) < last.patience()
}

// arrives notes that a poll came on the connection.
func (p *Poll) arrives() {
	if c := p.conn(); c.IsValid() {
		seen, known := p.server.polls.conns.get(c)
		if !known {
			seen.first = p.info.ID
		}
		seen.last = p.info.ID
		p.server.polls.conns.put(c, seen)
	}
}

// some are a few of the names that were asked for: of which of them the answer was
// refused nobody says.
func (p *Poll) some() (names []string) {
	for _, n := range p.names {
		if n != xds.Wildcard && len(names) < 5 {
			names = append(names, strings.Clone(n))
		}
	}
	return names
}

// refuses records that an answer was not applied. Each poll tells the observer,
// for which the last one is over; the log is told once.
func (p *Poll) refuses(e protocol.Event, before bool) {
	e.Kind, e.Nonce, e.Settled, e.Names = protocol.Nacked, e.Version, true, p.some()
	if !before {
		p.server.event(&p.info, e)
		return
	}
	if o := p.server.observer; o != nil {
		e.Error = &xds.Status{Code: e.Error.Code, Message: p.server.observed(true, func() string { return p.server.shown(p.info.Node, e.Type, e.Error.Message) })}
		o.Event(&p.info, e)
	}
}
