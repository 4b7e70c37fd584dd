// Package xdsclient gives commands access to an xDS server: its URL, flags, TLS, the node, and the errors that a user can act on.
package xdsclient
