// Package canned is an admin API with fixed answers, to test the output of commands.
package canned
