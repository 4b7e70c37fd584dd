//go:build race

package main

import "os"

// The program is built with the race detector, too, and dies of the first race:
// its tests fail with what it says. It ends at once, where the detector waits a second
// for the last races: some thousand commands run here.
func init() {
	buildFlags = []string{"-race"}
	if err := os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
}
