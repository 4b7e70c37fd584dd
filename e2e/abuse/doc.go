// Package abuse attacks the program with abuses of HTTP/2, xDS and its listeners, under a memory limit, while a fleet of
// good clients follows changes. docs/abuse.md has its results.
package abuse
