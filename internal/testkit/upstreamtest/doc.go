// Package upstreamtest is an xDS server in memory that a test tells what to send.
package upstreamtest
