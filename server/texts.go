package server

import (
	"sync"
	"time"
)

// What the texts of NACKs show nobody may see takes long to find: so long that clients which
// refuse all the time, each time in other words, would keep the server busy for an observer.
// Such a search is paid for with time, of which there is textShare of one core's, and
// textSaved at most are saved. Who has refused the type before may use the half of that:
// the other is for those of whom nothing is known yet.
const (
	textShare = 10 // a tenth
	textSaved = time.Second
	textLeast = time.Millisecond // counts for each, before it is known how long it takes
)

// unseen stands for a text when there is no time to look for what it shows.
const unseen = "(not looked at: too many refusals at once)"

// texts count the time. The zero value is ready to use.
type texts struct {
	mu   sync.Mutex // held for memory only
	owed time.Duration
	at   time.Time // when that was so
}

// look returns what show does, if there is time for it.
func (x *texts) look(again bool, show func() string) string {
	begun := time.Now()
	if !x.take(begun, again) {
		return unseen
	}
	text := show()
	x.pay(time.Since(begun) - textLeast)
	return text
}

func (x *texts) take(now time.Time, again bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owed = max(0, x.owed-now.Sub(x.at)/textShare)
	x.at = now
	most := textSaved
	if again {
		most /= 2
	}
	if x.owed+textLeast > most {
		return false
	}
	x.owed += textLeast
	return true
}

func (x *texts) pay(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owed = max(0, x.owed+d)
}
