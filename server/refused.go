package server

import "time"

// maxRefusals is how many refusals are remembered after their streams have ended.
const maxRefusals = 10_000

// A refusal means that a node has refused a type and has not accepted it since. A refusal outlives
// the stream. So the next different state is sent even if the client reconnects and states the
// version that it kept. The oldest refusals are forgotten.
type refusal struct{ node, url string }

// refusals remembers when each refusal began.
type refusals struct{ *lru[refusal, time.Time] }

func newRefusals(n int) refusals { return refusals{newLRU[refusal, time.Time](n)} }

func (r refusals) add(node, url string, now time.Time) {
	k := refusal{node, url}
	if since, again := r.get(k); again {
		now = since
	}
	r.put(k, now)
}

func (r refusals) has(node, url string) bool {
	_, ok := r.get(refusal{node, url})
	return ok
}

// refusedBefore reports whether a node has refused a type, on this or another server.
func (s *Server) refusedBefore(node, url string) bool {
	return s.refused.has(node, url) || s.shared != nil && s.shared.Has(node, url)
}

// forgetRefusal records that a node has accepted a type after its last NACK of the type (SOTW-18).
func (s *Server) forgetRefusal(node, url string) {
	s.refused.remove(refusal{node, url})
	if s.shared != nil {
		s.shared.Accepted(node, url)
	}
}
