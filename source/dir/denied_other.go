//go:build !unix

package dir

// deniedHint returns no hint: this system has other permissions than modes.
func deniedHint(string) string { return "" }
