// Package harness has what every test from outside needs: the program built and
// run, a real Envoy, traffic through it, and the configuration that both agree on.
// It knows no test and judges nothing but that processes and requests do not fail.
package harness
