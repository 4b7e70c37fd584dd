package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/logs/async"
)

// Exit codes.
const (
	OK         = 0
	Failed     = 1   // the command failed, or its answer is negative
	Misuse     = 2   // unknown flags, missing arguments
	NoServer   = 3   // for commands that ask a server: the server does not answer or denies access
	NotFound   = 4   // for commands that ask a server: the requested object does not exist
	Conflicted = 5   // for commands that commit: another writer has changed the same resource
	TimedOut   = 124 // the awaited state was not reached in time; the same code as timeout(1)
)

// A Failure is an error of a command that was used correctly. Any other error is an error of usage.
type Failure struct {
	Err  error
	Hint string // how to solve the problem; "": unknown
	Code int    // the exit code
}

// Error implements error.
func (f Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error without its hint.
func (f Failure) Unwrap() error { return f.Err }

// Fail returns a failure with the most common exit code, 1.
func Fail(err error, hint string) Failure { return FailWith(Failed, err, hint) }

// FailWith returns a failure with its own exit code.
func FailWith(code int, err error, hint string) Failure {
	return Failure{Err: err, Hint: hint, Code: code}
}

// ErrNo ends a command that has printed a negative answer.
var ErrNo = errors.New("the answer is no")

// ErrFindings ends a command that has printed its findings.
var ErrFindings = errors.New("there are findings")

// Run runs a command line with the commands of root. It prints the error and its hint, and returns the exit
// code.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.PersistentPreRunE, root.SilenceErrors, root.SilenceUsage = BindEnvironment, true, true
	root.SetFlagErrorFunc(ExplainFlagError)
	versionFlag(root)
	RegisterCompletions(root)
	RejectUnknownTopics(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return OK
	}
	if errors.Is(err, ErrFindings) || errors.Is(err, ErrNo) {
		return Failed
	}
	last := async.New(stderr, MaxQueuedLog, nil) // does not wait if the reader of the last lines is slow
	defer last.Close(LastLinesTimeout)
	fmt.Fprintln(last, "chancery: error:", err)
	f, is := errors.AsType[Failure](err)
	if !is {
		fmt.Fprintf(last, "chancery: hint: see %s --help\n", cmd.CommandPath())
		return Misuse
	}
	if f.Hint != "" {
		fmt.Fprintln(last, "chancery: hint:", f.Hint)
	}
	return f.Code
}
