package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// A size is the value of a flag that takes a number of bytes: 67108864, 64MiB, 64MB.
type size[T int | int64] struct{ bytes *T }

// SizeFlag adds a flag that takes a number of bytes.
func SizeFlag[T int | int64](f *pflag.FlagSet, to *T, name string, value T, usage string) {
	*to = value
	f.Var(size[T]{to}, name, usage)
}

// units has the units that a flag accepts. SizeText uses only the first four.
var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

// Set implements [pflag.Value].
func (s size[T]) Set(text string) error {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := int64(1)
	if suffix := text[len(number):]; suffix != "" {
		unit = 0
		for _, u := range units {
			if strings.EqualFold(suffix, u.name) {
				unit = u.bytes
			}
		}
	}
	n, err := strconv.ParseInt(strings.TrimRight(number, " "), 10, 64)
	switch bytes := n * unit; {
	case unit == 0 || err != nil && !errors.Is(err, strconv.ErrRange):
		return errors.New("no size")
	case err != nil || bytes/unit != n || int64(T(bytes)) != bytes:
		return strconv.ErrRange
	default:
		*s.bytes = T(bytes)
	}
	return nil
}

// String implements [pflag.Value].
func (s size[T]) String() string {
	if s.bytes == nil { // pflag calls String of the zero value, to find out whether a default is zero
		return "0"
	}
	return SizeText(int64(*s.bytes))
}

// Type implements [pflag.Value].
func (size[T]) Type() string { return "size" }

// SizeText returns a number of bytes with the largest binary unit that divides it.
func SizeText(bytes int64) string {
	for _, u := range units[:4] {
		if bytes != 0 && bytes%u.bytes == 0 {
			return fmt.Sprint(bytes/u.bytes, u.name)
		}
	}
	return fmt.Sprint(bytes)
}
