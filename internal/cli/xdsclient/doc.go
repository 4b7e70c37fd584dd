// Package xdsclient gives commands access to an xDS server: URL, flags, TLS, node, and errors with a hint
// for the user.
package xdsclient
