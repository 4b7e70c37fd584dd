package main

import (
	"testing"
)

// The version that the program was built with is where operators look for it; of responses,
// TestServe says so.
func TestReleased(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	serve(t, []string{"--metrics-listen", "127.0.0.1:" + port}, "a.yaml", cluster("a")).tells(port, "/metrics", `revision="`+testCommit+`",version="`+testVersion+`"} 1`)
}
