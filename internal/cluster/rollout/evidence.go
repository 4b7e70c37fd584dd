package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

const (
	evidencePrefix = "evidence/"
	maxServers     = 1000
	maxCause       = 500 // bytes
	maxAmong       = 5   // names
)

// Evidence is the report of a server about its connected clients in a rollout. The report exists as
// long as the server runs.
type Evidence struct {
	Server   string   `json:"server"`
	Turns    int      `json:"turns"` // number of changes of the holds that this server serves
	Seen     int      `json:"seen"`  // number of clients that were connected when the step picked them; if one is missing, it may have crashed
	Picked   int      `json:"picked"`
	Acked    int      `json:"acked"` // picked clients that have accepted all responses
	Refused  int      `json:"refused"`
	Waiting  int      `json:"waiting"`
	Refusal  *Refusal `json:"refusal,omitempty"`  // the first refusal of a client that had accepted everything before
	Rejected string   `json:"rejected,omitempty"` // why the server cannot serve the held revisions
}

// A Sum is the sum of the evidence of all servers.
type Sum struct {
	Servers                         int
	Turns                           int // the lowest Turns of all servers
	Seen                            int
	Picked, Acked, Refused, Waiting int
	Refusal                         *Refusal
	Rejected                        string
}

// Add adds the evidence of a server.
func (s *Sum) Add(e Evidence) {
	if s.Servers == 0 || e.Turns < s.Turns {
		s.Turns = e.Turns
	}
	s.Servers++
	s.Seen += e.Seen
	s.Picked, s.Acked, s.Refused, s.Waiting = s.Picked+e.Picked, s.Acked+e.Acked, s.Refused+e.Refused, s.Waiting+e.Waiting
	if s.Refusal == nil {
		s.Refusal = e.Refusal
	}
	if s.Rejected == "" && e.Rejected != "" {
		s.Rejected = fmt.Sprintf("server %s cannot serve it: %s", e.Server, e.Rejected)
	}
}

// Gather reads the evidence of all running servers.
func Gather(ctx context.Context, e revisions.Engine, id string) (s Sum, err error) {
	a, ok := e.(revisions.Announcer)
	if !ok {
		return s, nil
	}
	all, _, err := a.Announced(ctx, evidencePrefix+id+"/", maxServers)
	for _, b := range all {
		var of Evidence
		if json.Unmarshal(b, &of) == nil {
			s.Add(of)
		}
	}
	return s, err
}

// decide changes the state if the evidence requires it. The argument turns is the number of changes
// of the head's holds, and good is the time for which all servers have served the step without a
// problem.
func (s *State) decide(now time.Time, sum Sum, turns int, good time.Duration) (changed bool) {
	switch {
	case s.Phase.Ended():
		return false
	case sum.Refusal != nil:
		s.Refusal = sum.Refusal
		s.Turn(now, RolledBack, s.Step, sum.Refusal.String())
		return true
	case sum.Rejected != "":
		s.Turn(now, RolledBack, s.Step, sum.Rejected)
		return true
	case s.Phase != Running || !s.open(sum, turns) || good < s.Bake:
		return false
	}
	s.Go(now, "")
	return true
}

// open reports whether the evidence allows the next step. A client that has left counts as one that
// has not accepted, because it may have crashed. If no client was ever picked, only the time decides.
func (s *State) open(sum Sum, turns int) bool {
	return sum.Servers > 0 && sum.Turns >= turns && s.enough(sum)
}

func (s *State) enough(sum Sum) bool {
	return float64(sum.Acked)*100 >= s.MinAcked*float64(max(sum.Picked, sum.Seen))
}

// Reasons for a wait that usually end soon, or that the author of the rollout may not have expected.
const (
	NoServer = "no server has reported yet"
	NotYet   = "not all servers serve the step yet"
	Nobody   = "no connected client is picked: the time alone decides"
)

// Waits returns a short text about the condition for which a rollout waits. It is "" if all clients
// are healthy and only time must pass. The argument turns is the number of changes of the head's
// holds.
func (s *State) Waits(sum Sum, turns int) string {
	switch {
	case s.Phase.Ended():
		return ""
	case s.Phase == Paused:
		return strings.TrimSpace("it is paused " + strings.TrimPrefix(s.Why, "pause "))
	case sum.Servers == 0:
		return NoServer
	case sum.Turns < turns:
		return NotYet
	case !s.enough(sum):
		text := fmt.Sprintf("%d of %d clients have accepted it: it needs %g %%", sum.Acked, max(sum.Picked, sum.Seen), s.MinAcked)
		if gone := sum.Seen - sum.Picked; gone > 0 {
			text += fmt.Sprintf(" (%d picked clients have left)", gone)
		}
		return text
	case max(sum.Picked, sum.Seen) == 0:
		return Nobody
	}
	return ""
}
