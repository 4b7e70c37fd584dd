// Package upstreamtest is an in-memory xDS server whose responses are set by a test.
package upstreamtest
