package server

import (
	"slices"

	"github.com/chancery-xds/chancery/protocol"
)

// Observers combines several observers into one, such as metrics.Metrics and your own. The
// observers are called in order. The result is [CodesOnly] if all observers are CodesOnly.
func Observers(all ...Observer) Observer {
	all = slices.Clone(all)
	for _, o := range all {
		if _, without := o.(CodesOnly); !without {
			return observers(all)
		}
	}
	return codesOnlyObservers{observers(all)}
}

type observers []Observer

// Opened implements [Observer].
func (all observers) Opened(s *Stream) {
	for _, o := range all {
		o.Opened(s)
	}
}

// Event implements [Observer].
func (all observers) Event(s *Stream, e protocol.Event) {
	for _, o := range all {
		o.Event(s, e)
	}
}

// Closed implements [Observer].
func (all observers) Closed(s *Stream, err error) {
	for _, o := range all {
		o.Closed(s, err)
	}
}

// codesOnlyObservers are observers that are all CodesOnly.
type codesOnlyObservers struct{ observers }

// CodesOnly implements [CodesOnly].
func (codesOnlyObservers) CodesOnly() {}
