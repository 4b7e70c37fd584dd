package server

import (
	"slices"

	"github.com/chancery-xds/chancery/protocol"
)

// Observers returns an observer that tells several, one after the other, such as
// metrics.Metrics and one of your own. If all are [Textless], so is it.
func Observers(all ...Observer) Observer {
	all = slices.Clone(all)
	for _, o := range all {
		if _, without := o.(Textless); !without {
			return observers(all)
		}
	}
	return brief{observers(all)}
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

// brief are observers that no texts are looked for.
type brief struct{ observers }

// Textless implements [Textless].
func (brief) Textless() {}
