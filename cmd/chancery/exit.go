package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/logs/async"
)

// Exit codes.
const (
	ok         = 0
	failed     = 1   // it was asked for rightly and could not be done, or the answer is no
	misuse     = 2   // unknown flags, missing arguments
	noServer   = 3   // of commands that ask a server: none answers, or it lets nobody in
	notFound   = 4   // the same: what was asked for does not exist
	conflicted = 5   // of commands that commit: somebody else has changed the same
	timedOut   = 124 // what was waited for has not come; as timeout(1) says it
)

// A failure is an error of doing what was asked, as opposed to an error in how
// it was asked.
type failure struct {
	err  error
	hint string // what to do about it; "": nothing is known
	code int    // the exit code
}

func (f failure) Error() string { return f.err.Error() }

func (f failure) Unwrap() error { return f.err }

// fail is a failure with the exit code of most.
func fail(err error, hint string) failure { return failWith(failed, err, hint) }

// failWith is a failure with an exit code of its own.
func failWith(code int, err error, hint string) failure {
	return failure{err: err, hint: hint, code: code}
}

// errNo ends a command whose answer is no, and is printed already.
var errNo = errors.New("the answer is no")

// errFindings ends a command whose findings are printed already.
var errFindings = errors.New("there are findings")

// execute runs a command line with the commands of root, prints the error and its hint, and returns
// the exit code.
func execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.PersistentPreRunE, root.SilenceErrors, root.SilenceUsage = bind, true, true
	root.SetFlagErrorFunc(wrongFlag)
	versionFlag(root)
	completions(root)
	strict(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return ok
	}
	if errors.Is(err, errFindings) || errors.Is(err, errNo) {
		return failed
	}
	last := async.New(stderr, maxWaiting, nil) // of the program, which waits for no reader either
	defer last.Close(lastLines)
	fmt.Fprintln(last, "chancery: error:", err)
	f, is := errors.AsType[failure](err)
	if !is {
		fmt.Fprintf(last, "chancery: hint: see %s --help\n", cmd.CommandPath())
		return misuse
	}
	if f.hint != "" {
		fmt.Fprintln(last, "chancery: hint:", f.hint)
	}
	return f.code
}
