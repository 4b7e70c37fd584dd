//go:build !linux && !darwin

package cli

import "os"

// TerminalSize returns 0, 0: the size of a terminal is unknown on this system.
func TerminalSize(*os.File) (columns, lines int) { return 0, 0 }
