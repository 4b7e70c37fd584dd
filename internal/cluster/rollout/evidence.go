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

// Evidence is what a server says of the clients of a rollout that are connected to it. It is there as long as the server.
type Evidence struct {
	Server   string   `json:"server"`
	Turns    int      `json:"turns"` // of the holds that it serves
	Seen     int      `json:"seen"`  // clients that were there when they were picked: one that has gone may have crashed
	Picked   int      `json:"picked"`
	Acked    int      `json:"acked"` // of these: have accepted all that they were told
	Refused  int      `json:"refused"`
	Waiting  int      `json:"waiting"`
	Refusal  *Refusal `json:"refusal,omitempty"`  // the first of a healthy client
	Rejected string   `json:"rejected,omitempty"` // why it cannot serve the revision
}

// A Sum is the evidence of all servers.
type Sum struct {
	Servers                         int
	Turns                           int // the oldest of what is served
	Seen                            int
	Picked, Acked, Refused, Waiting int
	Refusal                         *Refusal
	Rejected                        string
}

// Add adds that of a server.
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

// Gather reads what the servers say that are there.
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

// decide changes the state if the evidence is for it: turns are those of the head's holds, and good is how long the step is in force
// on all servers, and nothing was wrong.
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

// open reports whether what the clients of the step say is enough for the next. Those that have gone have not accepted: they may have
// crashed. If nobody was ever there, the time alone decides.
func (s *State) open(sum Sum, turns int) bool {
	return sum.Servers > 0 && sum.Turns >= turns && s.enough(sum)
}

func (s *State) enough(sum Sum) bool {
	return float64(sum.Acked)*100 >= s.MinAcked*float64(max(sum.Picked, sum.Seen))
}

// What a rollout waits for that its servers are only about to say, or that who began it did not mean.
const (
	NoServer = "no server says that it is there"
	NotYet   = "not all servers serve the step yet"
	Nobody   = "nobody who is connected is picked, and the time alone decides"
)

// Waits says in a few words what a rollout waits for; "" if for nothing but time, with clients that are well. Turns are those of the
// head's holds.
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
		text := fmt.Sprintf("%d of %d clients have accepted it, and it needs %g %%", sum.Acked, max(sum.Picked, sum.Seen), s.MinAcked)
		if gone := sum.Seen - sum.Picked; gone > 0 {
			text += fmt.Sprintf(" (%d fewer are there than were picked)", gone)
		}
		return text
	case max(sum.Picked, sum.Seen) == 0:
		return Nobody
	}
	return ""
}
