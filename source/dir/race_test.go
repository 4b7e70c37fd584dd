//go:build race

package dir

func init() { raceEnabled = true }
