package soak

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// warmUp is the usual time until a server has filled the memory that it keeps: the last
// commits, the state of disconnected clients, idle goroutines, arenas of the heap. A town
// waits longer until the store has kept [remembered] commits. A short run uses a third of
// its time.
const warmUp = 5 * time.Minute

// enough is the number of samples that distinguish growth from noise, after the warm-up.
const enough = 24

// A level has the samples of one figure of a server at rest, in order.
type level []float64

// rise returns the growth of a level over the whole run, and its median. It compares the
// medians of the first and the last quarter, whose middles are three quarters of the run
// apart. A fitted line would be wrong: a disturbance, such as garbage of the last load,
// makes a sample larger by any amount, and never smaller.
func (l level) rise() (by, of float64) {
	q := len(l) / 4
	return (median(l[len(l)-q:]) - median(l[:q])) * 4 / 3, median(l)
}

func median(l level) float64 {
	s := slices.Sorted(slices.Values(l))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// flat returns an error if a level rises by more than this part of its median.
func (l level) flat(what string, part float64) error {
	by, of := l.rise()
	if by <= part*of {
		return nil
	}
	return fmt.Errorf("%s rises by %.3f over %d samples, which is %.1f %% of the median %.2f, want at most %.1f %%", what, by, len(l), 100*by/of, of, 100*part)
}

// flat accepts noise and refuses growth of more than 1 %.
func TestFlat(t *testing.T) {
	const n = 600 // samples of about an hour
	// noise returns a value in [0, 1), the same in each run.
	noise := func(i int) float64 { _, f := math.Modf(float64(i) * math.Phi); return f }
	for _, tt := range []struct {
		what  string
		at    func(i int) float64
		right bool
	}{
		{"constant", func(int) float64 { return 10 }, true},
		{"noise of 4 %", func(i int) float64 { return 10 + 0.4*noise(i) }, true},
		{"peaks of 50 %, more frequent in the second half", func(i int) float64 {
			if i%5 == 0 || i > n/2 && i%3 == 0 {
				return 15
			}
			return 10
		}, true},
		{"waves", func(i int) float64 { return 10 + math.Sin(float64(i)/7) }, true},
		{"falling", func(i int) float64 { return 10 - float64(i)/n }, true},
		{"0.8 % more", func(i int) float64 { return 10 + 0.08*float64(i)/n }, true},
		{"1.2 % more", func(i int) float64 { return 10 + 0.12*float64(i)/n }, false},
		{"1.5 % more, under noise of 4 %", func(i int) float64 { return 10 + 0.15*float64(i)/n + 0.4*noise(i) }, false},
		{"a step of 2 % in the middle", func(i int) float64 { return 10 + 0.2*math.Floor(float64(i)/n*2) }, false},
		{"1 KiB for each of 100 streams between two samples", func(i int) float64 { return 10 + 100*float64(i)/1024 }, false},
		{"2 % in the last third", func(i int) float64 { return 10 + 0.6*max(0, float64(i)/n-2.0/3) }, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var l level
			for i := range n {
				l = append(l, tt.at(i))
			}
			if err := l.flat("it", 0.01); (err == nil) != tt.right {
				t.Errorf("flat returns %v, want an error: %v", err, !tt.right)
			}
		})
	}
}

// A short run is checked for leaked streams only, a long run also for slow growth.
func TestFlatTown(t *testing.T) {
	grows := func(samples int, each float64) *town {
		v := &town{daemon: &daemon{}, streams: 45 * samples, warm: samples / 10, full: samples > enough}
		for i := range samples {
			heap := 12 + each*45*float64(i)/1024
			v.heap, v.needed = append(v.heap, heap), append(v.needed, 6+heap)
		}
		return v
	}
	outside := grows(300, 0)
	for i := range outside.needed {
		outside.needed[i] += float64(i) / 300
	}
	filling := grows(300, 0.5)
	filling.full = false
	for _, tt := range []struct {
		what  string
		town  *town
		right bool
	}{
		{"an hour, nothing grows", grows(300, 0), true},
		{"an hour, 16 bytes of heap for each stream", grows(300, 1.0/64), false},
		{"an hour, 1 MiB outside of the heap", outside, false},
		{"half a minute, 3 KiB for each stream", grows(8, 3), true},
		{"half a minute, whole streams", grows(8, 20), false},
		{"many samples, but the store still fills its memory of commits", filling, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if err := tt.town.flat(t.Logf); (err == nil) != tt.right {
				t.Errorf("flat returns %v, want an error: %v", err, !tt.right)
			}
		})
	}
}
