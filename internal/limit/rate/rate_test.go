package rate

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var p Pace
	for i := range 100 {
		if d := p.Take(start, 1, 10); d > 0 {
			t.Fatalf("the %dth waits %v: ten seconds' worth may come at once", i, d)
		}
	}
	if d := p.Take(start, 1, 10); d != time.Second/10 {
		t.Errorf("one more waits %v", d)
	}
	if d := p.Take(at(time.Second), 9, 10); d != 0 {
		t.Errorf("requests within a second wait %v", d)
	}
	if d := p.Take(at(time.Second), 20, 10); d != 2*time.Second {
		t.Errorf("twenty more wait %v", d)
	}
	if d := p.Take(at(time.Hour), 101, 10); d != time.Second/10 {
		t.Errorf("a long silence saves more than the burst: %v", d)
	}
	if d := p.Take(at(time.Hour), 1_000_000, -1); d != 0 {
		t.Errorf("without a rate: %v", d)
	}
}
