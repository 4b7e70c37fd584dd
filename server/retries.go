package server

import (
	"sync"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// The limits of retries of refused content, over all streams (HEAL-2).
const (
	retriesPerSecond    = 100
	retryBytesPerSecond = 8 << 20
)

// WithRetryRefused sends content that a client has refused again, although it has not changed: the reason may
// pass by itself. The first retry is after 5 s. The delay doubles with each refusal, up to 5 min. A client
// that accepts a resource to which the refused content refers gets the content at once. The server sends at
// most 100 retries and 8 MiB of them in a second. By default refused content is not sent again until it
// changes.
func WithRetryRefused() Option {
	return func(o *options) { o.limits.Retry = (&retryBudget{}).take }
}

// A retryBudget limits the retries of a server. The zero value is full.
type retryBudget struct {
	mu    sync.Mutex // held for arithmetic only
	at    time.Time
	count float64 // used up
	bytes float64
}

// take reports whether a retry of this size is permitted now. A retry that is larger than the limit of a second
// needs a full budget.
func (b *retryBudget) take(_ *xds.Type, bytes int) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		past := now.Sub(b.at).Seconds()
		b.count = max(0, b.count-past*retriesPerSecond)
		b.bytes = max(0, b.bytes-past*retryBytesPerSecond)
	}
	b.at = now
	if b.count+1 > retriesPerSecond || b.bytes > 0 && b.bytes+float64(bytes) > retryBytesPerSecond {
		return false
	}
	b.count++
	b.bytes += float64(bytes)
	return true
}
