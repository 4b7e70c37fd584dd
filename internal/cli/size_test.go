package cli

import (
	"errors"
	"strconv"
	"testing"

	"github.com/spf13/pflag"
)

// A size is a number of bytes, with a unit or without. Its text can be written as the flag's value.
func TestSizeFlagTakesUnits(t *testing.T) {
	for text, want := range map[string]struct {
		bytes int64
		told  string
	}{
		"67108864": {64 << 20, "64MiB"}, "64MiB": {64 << 20, "64MiB"}, "64 mib": {64 << 20, "64MiB"}, "64MB": {64e6, "62500KiB"}, "1GiB": {1 << 30, "1GiB"},
		"1536MiB": {1536 << 20, "1536MiB"}, "2TiB": {2 << 40, "2TiB"}, "5kB": {5000, "5000"}, "7B": {7, "7"}, "0": {0, "0"}, "-1KiB": {-1024, "-1KiB"},
	} {
		var got int64
		s := size[int64]{&got}
		if err := s.Set(text); err != nil || got != want.bytes || s.String() != want.told {
			t.Errorf("%q: %d, %s, %v", text, got, s, err)
		}
	}
	for _, text := range []string{"", "MiB", "64M", "64Mi", "1.5GiB", "0x10", "64MiB ", "ten", "1 2", "64MiBMiB"} {
		got := int64(7)
		if err := (size[int64]{&got}).Set(text); err == nil || errors.Is(err, strconv.ErrRange) || got != 7 {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"99999999999999999999", "9999999TiB", "9223372036854775807KiB"} {
		got := int64(7)
		if err := (size[int64]{&got}).Set(text); !errors.Is(err, strconv.ErrRange) || got != 7 {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	// The help shows no default for a flag whose default is zero.
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	var none, some int
	SizeFlag(f, &none, "none", 0, "`SIZE`")
	SizeFlag(f, &some, "some", 1<<20, "`SIZE`")
	if got := f.FlagUsages(); got != "      --none SIZE   SIZE\n      --some SIZE   SIZE (default 1MiB)\n" {
		t.Error(got)
	}
}
