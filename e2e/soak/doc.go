// Package soak judges the server by random worlds over gRPC: clients of every
// kind ask, change their minds, refuse, fall silent and come back, while files or
// a store change under them. When all has come to rest, each client must hold
// what a new one that asks for the same is told.
package soak
