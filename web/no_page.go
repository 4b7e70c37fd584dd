//go:build nopage

// Package web is empty in a program that was built with the tag nopage.
package web

import "io/fs"

// Files returns nil: the program has no page.
func Files() fs.FS { return nil }
