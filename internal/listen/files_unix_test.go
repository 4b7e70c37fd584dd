//go:build unix

package listen

import (
	"math"
	"syscall"
	"testing"
)

func TestRaiseFiles(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	low := before
	low.Cur = 500
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	got, err := RaiseFiles()
	if err != nil {
		t.Fatal(err)
	}
	var after syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &after); err != nil {
		t.Fatal(err)
	}
	most := uint64(before.Max) //nolint:unconvert // signed elsewhere
	if got.Soft != most || got.Hard != most || after.Cur != before.Max {
		t.Errorf("%+v, now %+v, before %+v", got, after, before)
	}
}

func TestFiles(t *testing.T) {
	for _, c := range []struct {
		files   Files
		few     bool
		clients int
	}{
		{Files{}, false, 0},
		{Files{Soft: 100}, true, 50},
		{Files{Soft: 300}, true, 236},
		{Files{Soft: 1024}, true, 896},
		{Files{Soft: 65_535}, true, 64_511},
		{Files{Soft: 65_536}, false, 64_512},
		{Files{Soft: 1_048_576}, false, 1_047_552},
		{Files{Soft: math.MaxUint64}, false, math.MaxInt32 - 1024},
	} {
		if c.files.Few() != c.few || c.files.Clients() != c.clients {
			t.Errorf("%+v: few %v, clients %d", c.files, c.files.Few(), c.files.Clients())
		}
	}
}
