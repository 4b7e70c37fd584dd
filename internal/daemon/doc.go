// Package daemon is the server that the command serve runs: it wires a source, the xDS server, the listeners and the admin API together.
package daemon
