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
)

// Evidence is the report of a server about its connected clients in a rollout. It exists as long as the
// server runs.
type Evidence struct {
	Server   string   `json:"server"`
	Turns    int      `json:"turns"` // of the holds that it serves
	Seen     int      `json:"seen"`  // clients that were connected when they were picked: a missing one may have crashed
	Picked   int      `json:"picked"`
	Acked    int      `json:"acked"` // of the picked: they have accepted all responses
	Refused  int      `json:"refused"`
	Waiting  int      `json:"waiting"`
	Refusal  *Refusal `json:"refusal,omitempty"`  // the first of a client that had accepted everything before
	Rejected string   `json:"rejected,omitempty"` // why it cannot serve the revision
}

// A Sum is the total evidence of all servers.
type Sum struct {
	Servers                         int
	Turns                           int // of the oldest holds served
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

// decide changes the state if the evidence requires it. turns is the number of changes of the head's
// holds. good is how long the step has been in force on all servers without a problem.
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

// open reports whether the evidence of the step allows the next one. Clients that have left have not
// accepted: they may have crashed. If no client was ever picked, the time alone decides.
func (s *State) open(sum Sum, turns int) bool {
	return sum.Servers > 0 && sum.Turns >= turns && s.enough(sum)
}

func (s *State) enough(sum Sum) bool {
	return float64(sum.Acked)*100 >= s.MinAcked*float64(max(sum.Picked, sum.Seen))
}

// Reasons why a rollout waits that usually pass soon, or that its author may not have intended.
const (
	NoServer = "no server has reported yet"
	NotYet   = "not all servers serve the step yet"
	Nobody   = "no connected client is picked: the time alone decides"
)

// Waits returns in a few words what a rollout waits for; "" if only for time, with healthy clients. turns
// is the number of changes of the head's holds.
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
