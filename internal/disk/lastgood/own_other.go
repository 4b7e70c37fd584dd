//go:build !unix

package lastgood

import "os"

// own does nothing: on this system the parent folder determines who may read a folder.
func own(string) error { return nil }

// trusted trusts all programs that can write to the folder.
func trusted(os.FileInfo) bool { return true }
