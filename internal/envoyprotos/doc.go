// Package envoyprotos registers every message of Envoy's API, so that any Any
// in a configuration file can be read. It has no code of its own.
//
// It adds about 25 MiB to a program: the command imports it, the library never.
package envoyprotos

//go:generate go run gen.go
