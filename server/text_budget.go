package server

import (
	"sync"
	"time"
)

// Removing secrets from the texts of NACKs is expensive. Clients that refuse all the time, each
// time with another text, could keep the server busy for an observer. So there is a budget of time:
// one part in textShare of the time of one core. Unused time is saved, at most textSaved. A node
// that has refused the type before may use only half of the budget, so that the rest is left for
// new refusals.
const (
	textShare   = 10 // a tenth of the time
	textSaved   = time.Second
	textMinimum = time.Millisecond // charged in advance, before the real cost is known
)

// textNotChecked replaces a text when the budget is used up.
const textNotChecked = "(not checked for secrets: too many refusals at once)"

// textBudget is the budget of time. The zero value is ready to use.
type textBudget struct {
	mu   sync.Mutex    // held for memory only
	owed time.Duration // used time that is not paid back yet
	at   time.Time     // when owed was computed
}

// look returns the result of show, if the budget allows it.
func (x *textBudget) look(again bool, show func() string) string {
	begun := time.Now()
	if !x.take(begun, again) {
		return textNotChecked
	}
	text := show()
	x.pay(time.Since(begun) - textMinimum)
	return text
}

func (x *textBudget) take(now time.Time, again bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owed = max(0, x.owed-now.Sub(x.at)/textShare)
	x.at = now
	most := textSaved
	if again {
		most /= 2
	}
	if x.owed+textMinimum > most {
		return false
	}
	x.owed += textMinimum
	return true
}

func (x *textBudget) pay(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owed = max(0, x.owed+d)
}
