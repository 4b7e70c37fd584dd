// Package endpoints contains the commands that register endpoints of clusters at a running server.
package endpoints
