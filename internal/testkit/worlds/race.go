//go:build race

package worlds

// RaceEnabled is set under the race detector.
const RaceEnabled = true
