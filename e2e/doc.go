// Package e2e holds no code, only tests: real clients judge the daemon from
// outside. See README.md.
package e2e
