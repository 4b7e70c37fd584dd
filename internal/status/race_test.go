//go:build race

package status

func init() { raceEnabled = true }
