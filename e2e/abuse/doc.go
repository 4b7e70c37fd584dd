// Package abuse attacks the program with ten abuses of HTTP/2 and of xDS, under a memory limit, while a fleet of good
// clients follows changes. docs/abuse.md has its results.
package abuse
