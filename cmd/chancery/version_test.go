package main

import (
	"testing"
)

// The version of the program is where operators look for it; TestServe checks that of responses.
func TestVersionOfRelease(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	serve(t, []string{"--metrics-listen", "127.0.0.1:" + port}, "a.yaml", cluster("a")).tells(port, "/metrics", `revision="`+testCommit+`",version="`+testVersion+`"} 1`)
}
