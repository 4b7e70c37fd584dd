// Package storeclient gives commands access to a revision store: directly, or over the admin API of a server.
package storeclient
