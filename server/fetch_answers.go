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

// A client that refuses an answer need not send a NACK: Envoy polls again with its previous version. The server
// remembers unacknowledged answers, so that it does not send the same answer in a loop.

// A poller identifies a client that polls for a type and names, in a fixed size. The poller of a
// client without a node id is zero.
type poller [16]byte

// pollerOf includes the IP address, so that nodes with the same id on different machines differ.
func pollerOf(s *Stream, names []string) poller {
	if s.Node.ID == "" {
		return poller{}
	}
	h := sha256.New()
	hashNames(h, []string{s.Node.ID, s.Type.URL, connOf(s.Peer).Addr().String()})
	hashNames(h, names)
	return poller(h.Sum(nil))
}

// connOf identifies a connection. The zero value means unknown.
func connOf(peer net.Addr) netip.AddrPort {
	if a, ok := peer.(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

func (p *Poll) conn() netip.AddrPort { return connOf(p.info.Peer) }

// digest is a hash of a client's version, in a fixed size.
func digest(version string) (d [16]byte) {
	if version != "" {
		h := sha256.Sum256([]byte(version))
		copy(d[:], h[:])
	}
	return d
}

// A lastAnswer is the last answer to a poller.
type lastAnswer struct {
	version string   // of the answer
	to      [16]byte // digest of the version that the client had before
	poll    uint64   // id of the poll
	conn    netip.AddrPort
	at      time.Time
	tries   int  // how often the same answer was sent before
	refused bool // the server has recorded that the client did not apply the answer
	said    bool // the client itself has refused the answer with a NACK
}

// connPolls has the ids of the first and the last poll on a connection.
type connPolls struct{ first, last uint64 }

// retryInterval is the time after which an answer that may be lost is repeated for the first time.
const retryInterval = 30 * time.Second

// retryAfter is the time until the next repetition.
func (t *lastAnswer) retryAfter() time.Duration { return retryInterval << min(t.tries, 6) }

// rememberAnswer remembers the last answer to the poller, if the poller is known.
func (p *Poll) rememberAnswer(what lastAnswer) {
	if p.poller != (poller{}) {
		p.server.polls.answers.put(p.poller, what)
	}
}

// checkLastAnswer decides which version the client must not get again, and records whether the
// client has applied the last answer.
func (p *Poll) checkLastAnswer(req xds.Request, version string) {
	p.recordConnection()
	now := time.Now()
	last, known := p.server.polls.answers.get(p.poller)
	e := protocol.Event{Type: p.info.Type}
	if known {
		e.Took = now.Sub(last.at)
	}
	acked := known && req.Error == nil && last.version == p.stated
	if acked {
		e.Kind, e.Version, e.Nonce, e.Settled = protocol.Acked, last.version, last.version, true
		since, refused := p.server.refused.get(refusal{p.info.Node.ID, p.info.Type.URL})
		p.server.event(&p.info, e, nil)
		if refused {
			p.server.event(&p.info, protocol.Event{Kind: protocol.Recovered, Type: e.Type, Version: e.Version, Took: now.Sub(since)}, nil)
		}
		p.server.polls.answers.remove(p.poller)
		known = false
	}
	as := known && last.to == digest(p.stated) // the client states the same version as in that poll
	p.standing.known, p.standing.partly = acked || as || p.stated == version, as || req.Error != nil
	e.InUse = p.stated
	switch {
	case req.Error != nil:
		e.Version = cmp.Or(strings.Clone(clip(req.Nonce)), last.version, version)
		e.Error = req.Error
		p.skipVersion = e.Version
		p.recordRefusal(e, as && last.refused && last.version == e.Version)
		p.rememberAnswer(lastAnswer{version: e.Version, to: digest(p.stated), poll: p.info.ID, conn: p.conn(), at: now, refused: true, said: true})

	case p.stated == version && as && last.version != version:
		// The client has not applied the last answer, or only a part of it. Now the view has the
		// old state again, so this version is new for the client.

	case p.stated == version:
		p.skipVersion = version

	case !as || last.version != version:

	case !p.received(last, now):
		p.retried = last

	default:
		e.Version = version
		e.Error = &xds.Status{Code: int32(codes.Unknown), Message: "not applied: the client polls again with its previous version"}
		p.skipVersion = version
		p.recordRefusal(e, last.refused)
		last.refused = true
		p.rememberAnswer(last)
	}
}

// received reports whether the client is assumed to have received an answer.
//
// If the connection is sequential and has brought another poll after the answer, the client has
// certainly received the answer. Envoy uses any of its connections for the next poll. In other
// cases the answer may be lost, so the server repeats it, but not in a loop. A client without a
// version may be a process that has just started, and must not wait, unless its connection is older
// than the answer.
func (p *Poll) received(last lastAnswer, now time.Time) bool {
	conns := p.server.polls.conns
	if own, known := conns.get(p.conn()); p.stated == "" && (!known || own.first > last.poll) {
		return false
	}
	if used, _ := conns.get(last.conn); last.said || p.caller.Sequential && used.last > last.poll {
		return true
	}
	return now.Sub(last.at) < last.retryAfter()
}

// recordConnection records the poll on its connection.
func (p *Poll) recordConnection() {
	if c := p.conn(); c.IsValid() {
		seen, known := p.server.polls.conns.get(c)
		if !known {
			seen.first = p.info.ID
		}
		seen.last = p.info.ID
		p.server.polls.conns.put(c, seen)
	}
}

// fewNames returns a few of the requested names for the log. A poll does not report which of its names the client
// refused.
func (p *Poll) fewNames() (names []string) {
	for _, n := range p.names {
		if n != xds.Wildcard && len(names) < 5 {
			names = append(names, strings.Clone(n))
		}
	}
	return names
}

// recordRefusal records that an answer was not applied. The observer gets an event for each poll, because the events of the
// last poll have ended. The log gets one line.
func (p *Poll) recordRefusal(e protocol.Event, before bool) {
	e.Kind, e.Nonce, e.Settled, e.Refuses, e.Names = protocol.Nacked, e.Version, true, true, p.fewNames()
	if !before {
		p.server.event(&p.info, e, nil)
		return
	}
	if o := p.server.observer; o != nil {
		e.Error = &xds.Status{Code: e.Error.Code, Message: p.server.observed(true, func() string { return p.server.shown(p.info.Node, e.Type, e.Error.Message) })}
		o.Event(&p.info, e)
	}
}
