package e2e

import (
	"os"
	"testing"
)

// pending skips what is known not to hold yet, unless it is asked for.
func pending(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("E2E_PENDING") == "" {
		t.Skipf("pending: %s (E2E_PENDING=1 runs it)", why)
	}
}
