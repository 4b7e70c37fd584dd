// Package canned is an admin API whose answers are always the same, for tests of what commands print.
package canned
