package clients

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// TurnedAway lists the peers of the last ten minutes, one entry for each reason and address. The number
// of entries is limited, for each address and in total.
func TestTurnedAway(t *testing.T) {
	now := time.Unix(1000, 0)
	tr := New(Options{Now: func() time.Time { return now }})
	for i := range 5000 { // a peer that invents node IDs
		tr.NoteTurnedAway(api.TurnedAway{Kind: "denied", Node: fmt.Sprint("n", i), From: fmt.Sprintf("10.0.0.1:%d", i), Text: "no"})
	}
	now = now.Add(time.Minute)
	for i := range 3 {
		tr.NoteTurnedAway(api.TurnedAway{Kind: "handshake", From: fmt.Sprintf("10.0.0.2:%d", i), Text: "expired"})
	}
	all := tr.TurnedAway("")
	if len(all) != 1+maxOfHost || all[0].From != "10.0.0.2" || all[0].Times != 3 || all[0].Node != "" {
		t.Errorf("%d: %+v", len(all), all[0])
	}
	if of := tr.TurnedAway("n4999"); len(of) != 1 || of[0].Times != 1 {
		t.Error(of)
	}
	for i := range 5000 {
		tr.NoteTurnedAway(api.TurnedAway{Kind: "denied", From: fmt.Sprintf("[fd00::%x]:1", i), Text: "no"})
	}
	if n, shown := len(tr.turnedAway.all), len(tr.TurnedAway("")); n > maxTurnedAway || shown != shownTurnedAway {
		t.Errorf("%d remembered, %d shown", n, shown)
	}
	now = now.Add(turnedAwayFor + time.Second)
	if all := tr.TurnedAway(""); len(all) != 0 || len(tr.turnedAway.all) != 0 || len(tr.turnedAway.of) != 0 {
		t.Errorf("%d after a while", len(all))
	}
}

// A new reason replaces the oldest reason of the address; a repeated reason becomes the newest.
func TestTurnedAwayForgetsOldest(t *testing.T) {
	now := time.Unix(1000, 0)
	tr := New(Options{Now: func() time.Time { return now }})
	turn := func(node, from string) {
		now = now.Add(time.Second)
		tr.NoteTurnedAway(api.TurnedAway{Kind: "denied", Node: node, From: from + ":1", Text: "no"})
	}
	turn("other", "10.0.0.2") // the oldest entry, of another address
	for i := range maxOfHost {
		turn(fmt.Sprint(i), "10.0.0.1")
	}
	turn("0", "10.0.0.1") // again
	turn("new", "10.0.0.1")
	for node, want := range map[string]int{"other": 1, "0": 1, "1": 0, "2": 1, "new": 1} {
		if n := len(tr.TurnedAway(node)); n != want {
			t.Errorf("node %s: %d, want %d", node, n, want)
		}
	}
	if n := tr.turnedAway.of["10.0.0.1"]; n != maxOfHost {
		t.Errorf("%d reasons are counted", n)
	}
}
