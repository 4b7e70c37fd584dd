//go:build !unix

package listen

// RaiseFiles does nothing: this system has no such limit, or it is unknown.
func RaiseFiles() (Files, error) { return Files{}, nil }
