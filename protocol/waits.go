package protocol

import "time"

// Waits returns until when no change of the view can make the session say
// anything or set a deadline that is earlier, whatever changes, unless a request
// comes before. The zero time: a change may at once.
//
// Whoever serves the session need not tell it of changes until then: those that
// came meanwhile are told of together.
func (s *Session) Waits() time.Time { return time.Time{} }
