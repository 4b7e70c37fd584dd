package soak

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// warmUp is how long a server takes to have what it keeps for a while: what the types
// were in the last five minutes, the last commits, what clients that are gone were told,
// goroutines' descriptors, arenas of the heap. It is longer where that takes longer, and a third of a run that is short.
const warmUp = 5 * time.Minute

// enough is how many samples after the warm-up tell a slope from noise.
const enough = 24

// A level is a figure of a server at rest, in the order of the samples.
type level []float64

// rise returns by how much a level rises over its time, and its median. The middles of
// the first and the last quarter are three quarters of the time apart. Medians of many
// samples, and not a line that is fitted, since what disturbs a sample makes it larger
// by any amount and never smaller: a load that has just ended, the collector's own.
func (l level) rise() (by, of float64) {
	q := len(l) / 4
	return (median(l[len(l)-q:]) - median(l[:q])) * 4 / 3, median(l)
}

func median(l level) float64 {
	s := slices.Sorted(slices.Values(l))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// flat returns an error if a level rises by more than a part of it.
func (l level) flat(what string, part float64) error {
	by, of := l.rise()
	if by <= part*of {
		return nil
	}
	return fmt.Errorf("%s rises by %.3f over %d samples, which is %.1f %% of %.2f: more than %.1f %%", what, by, len(l), 100*by/of, of, 100*part)
}

// The judge is judged by made-up levels.
func TestFlat(t *testing.T) {
	const n = 600 // about an hour's
	// noise is in [0, 1), and the same each time.
	noise := func(i int) float64 { _, f := math.Modf(float64(i) * math.Phi); return f }
	for _, tt := range []struct {
		what  string
		at    func(i int) float64
		right bool
	}{
		{"the same", func(int) float64 { return 10 }, true},
		{"noise of 4 %", func(i int) float64 { return 10 + 0.4*noise(i) }, true},
		{"peaks of a half, one of five, and more of them later", func(i int) float64 {
			if i%5 == 0 || i > n/2 && i%3 == 0 {
				return 15
			}
			return 10
		}, true},
		{"waves", func(i int) float64 { return 10 + math.Sin(float64(i)/7) }, true},
		{"it falls", func(i int) float64 { return 10 - float64(i)/n }, true},
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
				t.Errorf("the judge says %v", err)
			}
		})
	}
}

// What is judged of a run depends on how long it was.
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
		{"many samples, but it has not filled what it remembers", filling, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if err := tt.town.flat(t.Logf); (err == nil) != tt.right {
				t.Errorf("the judge says %v", err)
			}
		})
	}
}
