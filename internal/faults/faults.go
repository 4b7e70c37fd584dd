// Package faults records since when something fails, for the status of a server.
package faults

import (
	"sync"
	"time"
)

// A Fault is a failure that lasts, such as a full disk.
type Fault struct {
	Text  string
	Since time.Time
}

// A Record holds the present fault of one thing. The zero value has none. It is safe for concurrent use.
type Record struct {
	mu    sync.Mutex // held for memory only
	fault *Fault
}

// Set records the result of a try: err is the reason for the effect; nil ends the fault. It reports whether a fault
// began or ended.
func (r *Record) Set(effect string, err error) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.fault
	r.fault = nil
	if err != nil {
		r.fault = &Fault{effect + ": " + err.Error(), time.Now()}
		if before != nil {
			r.fault.Since = before.Since
		}
	}
	return (before == nil) != (err == nil)
}

// Present returns the present fault, if any.
func (r *Record) Present() []Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		return nil
	}
	return []Fault{*r.fault}
}
