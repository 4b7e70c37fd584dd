//go:build race

package main

import "os"

// The program is built with the race detector, too, and exits at the first race, so that the test
// fails with its report. The program exits without the detector's usual wait of one second, because
// the tests run some thousand commands.
func init() {
	buildFlags = []string{"-race"}
	if err := os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
}
