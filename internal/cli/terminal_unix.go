//go:build linux || darwin

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// TerminalSize returns the number of columns and lines of a terminal, or 0, 0 if unknown.
func TerminalSize(f *os.File) (columns, lines int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
