package transcripts

import (
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// commit gives the new view to the streams that it concerns.
func (p *play) commit() {
	p.remember()
	for _, s := range p.streams {
		if s.over {
			continue
		}
		s.missed = append(s.missed, p.touched)
		if p.hints != Idle || s.interested(p.touched) {
			p.wake(s)
		}
	}
	p.touched = xds.Names{}
}

// join makes the session of a stream a sibling of the sessions of its client.
func (p *play) join(s *stream, name string) {
	session, ok := s.Session.(*protocol.Session)
	if !ok {
		return // a session of a test, which knows no siblings
	}
	for _, o := range p.streams {
		if o.client != nil && o.client.name == name && o.variant == s.variant {
			s.client = o.client
		}
	}
	if s.client == nil {
		s.client = &client{name: name}
	}
	s.client.siblings.Join(session)
}

// leave ends a stream among the siblings of its session.
func (p *play) leave(s *stream) {
	c := s.client
	if c == nil {
		return
	}
	s.client = nil
	c.siblings.Leave(s.Session.(*protocol.Session), p.now)
	for _, o := range p.streams {
		if o.client == c {
			p.wake(o) // wakes all of them
			return
		}
	}
}

// wake gives a session, and its siblings, the time and the commits that they missed.
func (p *play) wake(s *stream) {
	if s.client == nil {
		p.wakeOne(s)
		return
	}
	s.client.siblings.Update(s.Session.(*protocol.Session), p.now, func(session *protocol.Session) (xds.View, []xds.Names) {
		i := slices.IndexFunc(p.streams, func(o *stream) bool { return o.Session == session })
		o := p.streams[i]
		touched := append([]xds.Names{}, o.missed...)
		if p.hints == None && len(o.missed) > 0 {
			touched = nil
		}
		o.missed, o.awake = nil, true
		return p.seen(), touched
	})
}

// wakeSiblings ends the step of a stream, and reports whether others of its client may have something to send.
func (p *play) wakeSiblings(s *stream) (again bool) {
	woken := s.client.siblings.EndStep(s.Session.(*protocol.Session))
	for _, o := range p.streams {
		o.awake = o.awake || slices.ContainsFunc(woken, func(session *protocol.Session) bool { return o.Session == session })
	}
	return len(woken) > 0
}

// wakeOne gives a session the time and the commits that it missed.
func (p *play) wakeOne(s *stream) {
	s.Advance(p.now)
	_, idle := s.Session.(idler)
	switch {
	case p.hints == None && len(s.missed) > 0:
		s.Change(p.seen(), nil)
	case p.hints == Idle && idle:
		s.Change(p.seen(), append([]xds.Names{}, s.missed...))
	case len(s.missed) > 0:
		s.Change(p.seen(), s.missed)
	}
	s.missed, s.awake = nil, true
}

// release lets an idle session release its view.
func (p *play) release(s *stream) {
	if i, ok := s.Session.(idler); ok && p.hints == Idle && !s.over && !p.held {
		i.Release()
		s.awake = false
	}
}

// note records the interests of a session.
func (p *play) note(s *stream) {
	i, ok := s.Session.(idler)
	if !ok {
		return
	}
	for moved := range i.Interests() {
		in := s.interests[moved.Type.URL]
		if in == nil {
			in = &interest{names: map[string]bool{}}
			s.interests[moved.Type.URL] = in
		}
		in.wildcard = moved.Wildcard
		for _, n := range moved.Added {
			in.names[n] = true
		}
		for _, n := range moved.Removed {
			delete(in.names, n)
		}
	}
}

func (s *stream) interested(touched xds.Names) bool {
	if _, ok := s.Session.(idler); !ok {
		return true
	}
	for url, names := range touched {
		in := s.interests[url]
		if in != nil && slices.ContainsFunc(names, func(n string) bool { return in.wildcard || in.names[n] }) {
			return true
		}
	}
	return false
}

// wait lets time pass. Sessions are advanced at their deadlines, as a server would, and once at the
// end. A session that sends something only then had no deadline for it: that is an error.
func (p *play) wait(d time.Duration) {
	end := p.now.Add(d)
	for {
		var next time.Time
		for _, s := range p.streams {
			if t := s.Deadline(); !s.over && !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
		if next.IsZero() || next.After(end) {
			break
		}
		if p.now.Before(next) {
			p.now = next
		}
		p.advance(func(s *stream) bool { t := s.Deadline(); return !t.IsZero() && !t.After(p.now) })
		for _, s := range p.streams {
			if t := s.Deadline(); !s.over && !p.held && !t.IsZero() && !t.After(p.now) {
				fmt.Fprintf(&p.out, "error: the session still has the deadline %v after it was advanced to it\n", t.Sub(start))
				s.over = true
			}
		}
	}
	p.now = end
	before := p.out.Len()
	p.advance(func(*stream) bool { return true })
	if p.out.Len() > before {
		fmt.Fprintf(&p.out, "error: the session had no deadline for this\n")
	}
}

// advance wakes streams and sends the due responses.
func (p *play) advance(which func(*stream) bool) {
	for _, s := range p.streams {
		if !s.over && which(s) {
			p.wake(s)
		}
	}
	p.drain()
}
