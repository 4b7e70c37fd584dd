// Package chaos is the failure matrix: the built program with five hundred clients
// and two Envoys under load, and one fault after the other. What each costs stands in
// docs/reliability.md, as the rows print it.
package chaos
