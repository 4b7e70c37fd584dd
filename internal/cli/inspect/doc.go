// Package inspect contains the commands that show the state of a running server, its clients or another xDS server:
// status, get, explain, wait, watch, diff, fetch and more.
package inspect
