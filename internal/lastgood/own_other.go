//go:build !unix

package lastgood

// own has nothing to do: who may read a folder is said by the one it is in.
func own(string) error { return nil }
