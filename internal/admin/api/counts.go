package api

import (
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/text"
)

// States lists all states, worst first.
var States = []State{Nacked, Stale, Waiting, Sent, NotSent, Absent, Leaving, Synced, Idle}

// stateWords has the word for clients in a state.
var stateWords = map[State]string{
	Nacked: "refusing", Stale: "not answering", Waiting: "waiting", Sent: "being sent to",
	NotSent: "without a response yet", Synced: "synced", Idle: "idle",
	Absent: "absent", Leaving: "leaving",
}

// Text returns the number of clients in each state, for people: "3 connected: 2 synced, 1 refusing".
func (c Counts) Text() string {
	if c.Connected == 0 {
		return "none connected"
	}
	texts := []string{text.Number(c.By[Synced]) + " " + stateWords[Synced]}
	for _, s := range States {
		if n := c.By[s]; n > 0 && s != Synced {
			texts = append(texts, text.Number(n)+" "+stateWords[s])
		}
	}
	return text.Number(c.Connected) + " connected: " + strings.Join(texts, ", ")
}

// Text returns the removals for people: "5 removals wait until 2026-11-30T12:00:05Z".
func (r Removals) Text() string {
	verb := " wait until "
	if r.Resources == 1 {
		verb = " waits until "
	}
	return text.Amount(r.Resources, "removal") + verb + r.Until.UTC().Format(time.RFC3339)
}
