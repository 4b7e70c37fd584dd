// Package endpoints has the commands that register endpoints at a server.
package endpoints
