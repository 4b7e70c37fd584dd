package server

import "time"

// maxRefusals is how many refusals are remembered beyond their streams.
const maxRefusals = 10_000

// A refusal is that a node has refused a type and accepted none since. It outlives
// the streams: "the next differing state is always sent", also when the client comes
// back and states the version that it kept. The oldest are forgotten.
type refusal struct{ node, url string }

// A refusals remembers since when.
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

// refusedBefore reports whether a node has refused a type, here or at another server.
func (s *Server) refusedBefore(node, url string) bool {
	return s.refused.has(node, url) || s.shared != nil && s.shared.Has(node, url)
}
