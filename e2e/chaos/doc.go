// Package chaos is the failure matrix: it runs the program with five hundred clients and two Envoys under
// load, and causes one fault after the other. docs/reliability.md has its results.
package chaos
