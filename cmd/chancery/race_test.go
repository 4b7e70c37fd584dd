//go:build race

package main

import "os"

// The program is built with the race detector, too, and dies of the first race:
// its tests fail with what it says.
func init() {
	buildFlags = []string{"-race"}
	if err := os.Setenv("GORACE", "halt_on_error=1"); err != nil {
		panic(err)
	}
}
