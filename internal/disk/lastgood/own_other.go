//go:build !unix

package lastgood

import "os"

// own has nothing to do: who may read a folder is said by the one it is in.
func own(string) error { return nil }

// trusted believes who could write to the folder.
func trusted(os.FileInfo) bool { return true }
