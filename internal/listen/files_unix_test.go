//go:build unix

package listen

import (
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
		clients uint64
	}{
		{Files{}, false, 0},
		{Files{Soft: 100}, true, 0},
		{Files{Soft: 65_535}, true, 65_279},
		{Files{Soft: 65_536}, false, 65_280},
		{Files{Soft: 1_048_576}, false, 1_048_320},
	} {
		if c.files.Few() != c.few || c.files.Clients() != c.clients {
			t.Errorf("%+v: few %v, clients %d", c.files, c.files.Few(), c.files.Clients())
		}
	}
}
