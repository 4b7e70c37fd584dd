// Package cli contains the parts that chancery's commands share: output formats, the flags that choose a
// server, help, environment variables, completion, exit codes, and errors with a hint. The commands are in
// the packages below.
package cli
