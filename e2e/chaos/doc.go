// Package chaos is the failure matrix: it puts the built program, with five hundred clients and two Envoys
// under load, through one fault after the other. docs/reliability.md has the rows that it prints.
package chaos
