package client

import "time"

// The backoff of connections, as gRPC has it ("GRPC Connection Backoff Protocol").
const (
	backoffFirst  = time.Second
	backoffFactor = 1.6
	backoffMost   = 2 * time.Minute
	backoffJitter = 0.2
)

// A reconnect says when a stream that has ended is opened again. It has no clock and no dice:
// random is in [0, 1). The zero value is that of a server nobody has asked yet.
type reconnect struct {
	tries  int       // streams that ended since the last response
	atOnce time.Time // when a stream was last followed by another at once
}

// answered tells that a response came.
func (b *reconnect) answered() { b.tries = 0 }

// ended returns when the next stream is due after one that ended now. One that had brought a
// response is followed at once: a server that restarts, or ends streams by age, is no failure.
// But once in a second only, so that a server that ends every stream is not asked without end.
func (b *reconnect) ended(now time.Time, hadResponse bool, random float64) time.Time {
	if hadResponse && now.Sub(b.atOnce) >= backoffFirst {
		b.atOnce = now
		return now
	}
	wait := float64(backoffFirst)
	for i := 0; i < b.tries && wait < float64(backoffMost); i++ {
		wait *= backoffFactor
	}
	b.tries++
	wait = min(wait, float64(backoffMost)) * (1 - backoffJitter + 2*backoffJitter*random)
	return now.Add(time.Duration(wait))
}
