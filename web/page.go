//go:build !nopage

// Package web has the operator's page: its sources, and the built files in dist. The page is a client of the
// admin API and computes nothing about configuration. docs/page.md describes it for users.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the built files, compressed with gzip: each name ends with ".gz". The result is nil in a program
// that was built with the tag nopage.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // "dist" is a valid path
	}
	return files
}
