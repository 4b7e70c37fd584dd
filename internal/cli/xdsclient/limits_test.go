package xdsclient

import (
	"testing"

	"github.com/chancery-xds/chancery/internal/cli"
)

// An upstream cannot take all memory.
func TestLimitsDerivedFromMemory(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		what                      string
		m                         cli.Memory
		given, upstream, response int
	}{
		{"SAFE-14 little memory", cli.Memory{Bytes: 256 * mib}, 0, 64 * mib, 8 * mib},
		{"SAFE-14 hardly any memory", cli.Memory{Bytes: 16 * mib}, 0, 4 * mib, 4 * mib},
		{"SAFE-14 much memory", cli.Memory{Bytes: 8192 * mib}, 0, 2048 * mib, 256 * mib},
		{"SAFE-14 no limit: half the memory of the machine", cli.Memory{Machine: 2048 * mib}, 0, 256 * mib, 32 * mib},
		{"SAFE-14 given limits stay", cli.Memory{Bytes: 256 * mib}, mib, mib, mib},
		{"the memory is unknown", cli.Memory{}, 0, 0, 256 * mib},
	} {
		l := Limits{All: c.given, Response: c.given}
		l.DeriveFrom(c.m)
		if l.All != c.upstream || l.Response != c.response {
			t.Errorf("%s: %d and %d bytes", c.what, l.All, l.Response)
		}
	}
}
