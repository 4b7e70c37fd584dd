// Package cli has what the commands of chancery share: output, flags of the server that a command asks, help, environment variables,
// completion, exit codes and errors with a hint. The commands are in the packages below.
package cli
