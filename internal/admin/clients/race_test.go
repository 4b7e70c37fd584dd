//go:build race

package clients

func init() { raceEnabled = true }
