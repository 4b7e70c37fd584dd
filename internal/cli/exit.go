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
	Failed     = 1   // it was asked for rightly and could not be done, or the answer is no
	Misuse     = 2   // unknown flags, missing arguments
	NoServer   = 3   // of commands that ask a server: none answers, or it lets nobody in
	NotFound   = 4   // the same: what was asked for does not exist
	Conflicted = 5   // of commands that commit: somebody else has changed the same
	TimedOut   = 124 // what was waited for has not come; as timeout(1) says it
)

// A Failure is an error of doing what was asked, as opposed to an error in how
// it was asked.
type Failure struct {
	Err  error
	Hint string // what to do about it; "": nothing is known
	Code int    // the exit code
}

// Error implements error.
func (f Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error without its hint.
func (f Failure) Unwrap() error { return f.Err }

// Fail is a failure with the exit code of most.
func Fail(err error, hint string) Failure { return FailWith(Failed, err, hint) }

// FailWith is a failure with an exit code of its own.
func FailWith(code int, err error, hint string) Failure {
	return Failure{Err: err, Hint: hint, Code: code}
}

// ErrNo ends a command whose answer is no, and is printed already.
var ErrNo = errors.New("the answer is no")

// ErrFindings ends a command whose findings are printed already.
var ErrFindings = errors.New("there are findings")

// Run runs a command line with the commands of root, prints the error and its hint, and returns
// the exit code.
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
	last := async.New(stderr, MaxQueuedLog, nil) // of the program, which waits for no reader either
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
