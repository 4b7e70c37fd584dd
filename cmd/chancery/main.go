// Command chancery is an xDS management server: it gives Envoy, gRPC and other
// xDS clients their configuration, out of a directory of files.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

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

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "chancery",
		Short: "An xDS control plane",
		Long: `Chancery is an xDS control plane. It serves a directory of files in Envoy's own
format (listeners, routes, clusters, endpoints, secrets and all other resource
types) to Envoy, gRPC and any other xDS client, and sends changes whenever a file
changes.

An environment variable can replace each flag: CHANCERY_LISTEN for --listen. If
both are given, the flag is used.`,
		Example: `  chancery check ./config
  chancery serve ./config
  chancery bootstrap envoy | envoy -c /dev/fd/0
  chancery status`,
		PersistentPreRunE: bind,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.SetFlagErrorFunc(wrongFlag)
	serve := serveCommand()
	root.AddCommand(serve, statusCommand(), getCommand(), explainCommand(), waitCommand(), watchCommand(), endpointsCommand(), graphCommand(), bugreportCommand(), checkCommand(), previewCommand(), diffCommand(), fetchCommand(), importCommand(), reloadCommand(), applyCommand(), historyCommand(), blameCommand(), rollbackCommand(), freezeCommand(), unfreezeCommand(), rolloutCommand(), sweepCommand(), exportCommand(), agentCommand(), bootstrapCommand(), healthCommand(), versionCommand(), packagingCommand(), limitsTopic(serve))
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
	code := failed
	if o, of := errors.AsType[outcome](err); of {
		f, is, code = o.failure, true, o.code
	}
	if !is {
		fmt.Fprintf(last, "chancery: hint: see %s --help\n", cmd.CommandPath())
		return misuse
	}
	if f.hint != "" {
		fmt.Fprintln(last, "chancery: hint:", f.hint)
	}
	return code
}

// A failure is an error of doing what was asked, as opposed to an error in how
// it was asked.
type failure struct {
	error
	hint string
}

func (f failure) Unwrap() error { return f.error }

// An outcome is a failure with an exit code of its own.
type outcome struct {
	failure
	code int
}

// errNo ends a command whose answer is no, and is printed already.
var errNo = errors.New("the answer is no")
