package peers

import "time"

// A Surplus says how many streams a server ends, so that clients spread over all servers. The zero value is ready to use.
type Surplus struct {
	ends bool // it has more than its share, and has not come down yet
}

// When streams are ended, and how many. "A replica above 1.3x mean closes a few oldest streams/s." Who has begun goes on until it is near the mean,
// so that two servers do not send clients to and fro.
const (
	begins, stops = 1.3, 1.1 // of the mean
	fewest        = 10       // above the mean: below it is not worth it
	perSecond     = 5        // at most, and at least 1
	calm          = 5 * time.Minute
)

// Next returns how many streams a server with mine of them ends in this second, and the mean of all. A server is not sure of the others if
// one has vanished lately, whose clients will come and go, or not all are known: then it ends none.
func (s *Surplus) Next(mine int, others []int, sure bool) (n int, mean float64) {
	all := float64(mine)
	for _, n := range others {
		all += float64(n)
	}
	mean = all / float64(len(others)+1)
	limit := begins
	if s.ends {
		limit = stops
	}
	over := float64(mine) - mean*stops
	if s.ends = sure && len(others) > 0 && float64(mine) > mean*limit && (s.ends || float64(mine)-mean >= fewest); !s.ends {
		return 0, mean
	}
	return max(1, min(perSecond, mine/100, int(over))), mean
}

// Streams returns how many streams the other servers have announced that serve a revision: no client goes to another. Sure says whether that can be
// relied on: the store was read just now, what all have announced can be read and be true, and none has vanished for some minutes.
func (r *Replicas) Streams() (others []int, sure bool) {
	all, unsure := r.others()
	sure = unsure == nil
	for _, m := range all {
		switch {
		case m.Since.IsZero() || m.Streams < 0:
			sure = false
		case m.Revision != "":
			others = append(others, m.Streams)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return others, sure && time.Since(r.at) < 3*lookEvery && time.Since(r.left) > calm
}
