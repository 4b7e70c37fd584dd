// Package store has the commands that read and change a revision store.
package store
