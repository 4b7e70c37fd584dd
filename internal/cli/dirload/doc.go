// Package dirload contains the flags, checks and warnings that are common to commands that load a
// directory.
package dirload
