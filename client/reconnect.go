package client

import "time"

// The backoff of connections, as in gRPC ("GRPC Connection Backoff Protocol").
const (
	backoffFirst  = time.Second
	backoffFactor = 1.6
	backoffMax    = 2 * time.Minute
	backoffJitter = 0.2
)

// A reconnect decides when the next stream is opened. The time and the random numbers are
// arguments. The zero value is for a server without any stream so far.
type reconnect struct {
	tries    int       // streams that ended since the last response
	reopened time.Time // the time of the last next stream that followed a stream with a response
}

// answered records that a response arrived.
func (b *reconnect) answered() { b.tries = 0 }

// ended returns the time for the next stream after a stream that ended now. If the ended stream had
// a response, the next stream is due immediately, but a second after the last such stream at the
// earliest: a server that restarts or limits the age of streams has not failed. Otherwise the wait
// grows with each try. The parameter random is in [0, 1).
func (b *reconnect) ended(now time.Time, hadResponse bool, random float64) time.Time {
	if hadResponse {
		if at := b.reopened.Add(backoffFirst); at.After(now) {
			now = at
		}
		b.reopened = now
		return now
	}
	wait := float64(backoffFirst)
	for i := 0; i < b.tries && wait < float64(backoffMax); i++ {
		wait *= backoffFactor
	}
	b.tries++
	wait = min(wait, float64(backoffMax)) * (1 - backoffJitter + 2*backoffJitter*random)
	return now.Add(time.Duration(wait))
}
