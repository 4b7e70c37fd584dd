//go:build linux || darwin

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// TerminalSize is how many columns and lines a terminal has; 0 if it does not say.
func TerminalSize(f *os.File) (columns, lines int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
