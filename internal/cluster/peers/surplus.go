package peers

import "time"

// A Surplus computes how many streams a server ends, so that clients spread over all servers. The zero
// value is ready to use.
type Surplus struct {
	ends bool // the server is ending streams, until its number is near the mean
}

// The limits for ending streams. "A replica above 1.3x mean closes a few oldest streams/s." A server
// that began continues until it is near the mean. Otherwise two servers could send clients back and
// forth.
const (
	begins, stops = 1.3, 1.1 // shares of the mean
	fewest        = 10       // minimum number of streams above the mean to begin
	perSecond     = 5        // maximum number of streams to end in a second
	calm          = 5 * time.Minute
)

// Next returns the number of streams to end in this second, and the mean of all servers. The argument
// mine is the number of streams of this server. If sure is false, it ends none: some server is
// unknown, or has vanished lately and its clients are still moving.
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
	s.ends = sure && len(others) > 0 && float64(mine) > mean*limit && (s.ends || float64(mine)-mean >= fewest)
	if !s.ends {
		return 0, mean
	}
	return max(1, min(perSecond, mine/100, int(over))), mean
}

// Streams returns the announced number of streams of each other server that serves a revision;
// clients cannot use other servers. The result sure reports whether the numbers are reliable: the
// store was read just now, all announcements are readable and credible, and no server has vanished
// for some minutes.
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
