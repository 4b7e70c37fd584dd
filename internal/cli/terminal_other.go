//go:build !linux && !darwin

package cli

import "os"

// TerminalSize is not known on this system.
func TerminalSize(*os.File) (columns, lines int) { return 0, 0 }
